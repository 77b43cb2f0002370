"""The status page as people meet it: in a browser, with a mouse, a keyboard, in light and dark."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import ANSWER, KEY, Site
from tests.support.browser import Visit
from tests.support.server_process import ServerProcess, running_server

Open = Callable[..., Visit]
SHOWN = ANSWER.replace("**", "").replace("`", "").replace("python\n", "")
NARROW = {"width": 360, "height": 740}


def last_words(page: Page) -> str:
    return page.locator(".turn.assistant .words").last.inner_text()


def without_breaks(text: str) -> str:
    return "".join(text.split())


def until_answered(page: Page) -> None:
    expect(page.locator("#talk")).to_have_attribute("aria-busy", "false")


def test_it_shows_what_runs(server: ServerProcess, visit: Open) -> None:
    page = visit(server).page
    expect(page.locator("#state")).to_have_attribute("data-state", "ok")
    expect(page).to_have_title("tiny · Dougong")
    expect(page.locator("#where")).to_contain_text("on null")
    expect(page.locator("#facts")).to_contain_text("LlamaForCausalLM")
    expect(page.locator("#errors")).to_contain_text("None since the start")
    expect(page.locator(".plot")).to_have_count(5)


def test_a_click_streams_an_answer_piece_by_piece_and_the_plots_tell_of_it(
    server: ServerProcess, visit: Open
) -> None:
    one = visit(server)
    page = one.page
    one.until_serving()
    page.fill("#question", "What is a dougong?")
    page.click("#send")
    expect(page.locator("#send")).to_have_text("Stop")
    lengths = set()
    while page.get_attribute("#talk", "aria-busy") == "true":
        lengths.add(len(last_words(page)))
        page.wait_for_timeout(50)
    assert len(lengths) >= 5, "it came at once"
    assert without_breaks(last_words(page)) == without_breaks(SHOWN)
    expect(page.locator(".turn.assistant strong")).to_have_text("lock")
    expect(page.locator(".turn.assistant pre")).to_have_text("print('dou')")
    expect(page.locator(".turn.assistant .note")).to_contain_text("tokens/s")
    expect(page.locator(".plot.big .value")).to_have_text(re.compile(r"[1-9]\d*"))
    expect(page.locator(".plot .line")).not_to_have_count(0)
    between = page.locator(".plot", has_text="Between tokens")
    expect(between.locator(".value").first).to_have_text(re.compile(r"\d+"))


def test_what_a_model_or_a_person_writes_is_text_and_no_markup(
    server: ServerProcess, visit: Open
) -> None:
    page = visit(server).page
    page.fill("#question", "<img src=x onerror=alert(1)><b>bold</b>")
    page.click("#send")
    expect(page.locator(".turn.user")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator(".turn.user img, .turn.user b").count() == 0
    until_answered(page)


def test_stop_ends_the_request_and_keeps_the_text_so_far(
    server: ServerProcess, visit: Open
) -> None:
    page = visit(server).page
    page.fill("#question", "Stop me")
    page.click("#send")
    expect(page.locator(".turn.assistant .words")).not_to_be_empty()
    page.click("#send")
    expect(page.locator(".turn.assistant .note")).to_have_text("Stopped")
    assert 0 < len(last_words(page)) < len(SHOWN)
    expect(page.locator("#totals")).to_contain_text("client left1")
    page.click("#chat-new")
    expect(page.locator(".turn")).to_have_count(0)


def test_a_refused_question_says_why_and_comes_back_to_the_box(
    server: ServerProcess, visit: Open
) -> None:
    page = visit(server, is_quiet=False).page
    page.fill("#question", "too much " * 100)
    page.click("#send")
    expect(page.locator(".turn.failed .note")).to_contain_text("tokens and can have at most")
    expect(page.locator("#question")).to_have_value(("too much " * 100).strip())
    expect(page.locator(".turn.user")).to_have_count(0)


def _told_otherwise(page: Page, **about: bool | None) -> None:
    """Let the server's answer say something else of the model, and load the page again."""

    def answer(route: Route) -> None:
        status = route.fetch().json()
        if "about" in status:
            status["about"].update(about)
        route.fulfill(json=status)

    page.route("**/status.json*", answer)
    page.reload()


def test_a_model_without_a_template_continues_texts(server: ServerProcess, visit: Open) -> None:
    one = visit(server)
    page = one.page
    _told_otherwise(page, has_chat=False)
    expect(page.locator("#chat-title")).to_have_text("Continue a text")
    page.fill("#question", "Once upon a time")
    page.click("#send")
    expect(page.locator(".turn.assistant .words")).not_to_be_empty()
    page.keyboard.press("Escape")
    assert f"{server.url}/v1/completions" in one.asked


def test_a_model_that_makes_vectors_cannot_be_talked_to(server: ServerProcess, visit: Open) -> None:
    one = visit(server)
    _told_otherwise(one.page, makes_text=False, num_token_slots=None)
    expect(one.page.locator("#facts")).to_contain_text("keeps nothing between steps")
    expect(one.page.locator("#talk")).to_contain_text("/v1/embeddings")
    expect(one.page.locator("#chat-form")).to_be_hidden()
    assert one.faults() == []


def test_everything_is_reached_and_done_by_keyboard_alone(
    server: ServerProcess, visit: Open
) -> None:
    one = visit(server)
    page = one.page
    one.until_serving()
    seen: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        told = page.evaluate(_FOCUSED)
        if told is None:
            break
        seen.append(told)
    names = [name for name, _, has_ring in (one.split("|") for one in seen) if has_ring == "true"]
    assert names == [name.split("|")[0] for name in seen], "a ring is missing"
    wanted = ("Skip to the chat", "theme-button", "span", "talk", "question", "send", "Settings")
    for name in wanted:
        assert name in names, (name, names)
    assert sum(name == "slider" for name in names) == 5

    page.locator(".area").first.focus()
    before = page.get_attribute(".area >> nth=0", "aria-valuetext")
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#cursor-text")).to_contain_text("ago")
    assert page.get_attribute(".area >> nth=0", "aria-valuetext") != before
    page.keyboard.press("Escape")
    expect(page.locator("#cursor-text")).to_be_empty()

    page.locator("input[name=span]:checked").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("input[name=span]:checked").input_value() == "300"

    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("Hello")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("there")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.user .words")).to_have_text("Hello\nthere")
    expect(page.locator(".turn.assistant .words")).not_to_be_empty()
    page.keyboard.press("Escape")
    expect(page.locator(".turn.assistant .note")).to_have_text("Stopped")


_FOCUSED = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const ring = at.type === "radio" ? at.nextElementSibling : at;
  const style = getComputedStyle(ring);
  const name = at.id || at.name || at.getAttribute("role") || at.textContent.trim();
  const hasRing = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
  return [name, at.tagName, hasRing].join("|");
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1440, "height": 900}, NARROW], ids=["wide", "narrow"])
def test_it_is_legible_in_both_schemes_at_any_width(
    server: ServerProcess, visit: Open, screens: Path, scheme: str, size: dict[str, int]
) -> None:
    one = visit(server, color_scheme=scheme, viewport=size)
    page = one.page
    one.until_serving()
    page.fill("#question", "Show yourself")
    page.click("#send")
    until_answered(page)
    page.click(".settings summary")
    page.click("#facts summary")
    assert one.faults() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert (page.evaluate(_BRIGHTNESS) > 128) == (scheme == "light")
    page.click("#facts summary")
    page.click(".settings summary")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=screens / f"{scheme}-{size['width']}.png", full_page=True)


_BRIGHTNESS = """() => {
  const parts = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
  return (parts[0] + parts[1] + parts[2]) / 3;
}"""


def test_the_rules_find_a_planted_fault(server: ServerProcess, visit: Open) -> None:
    one = visit(server)
    one.until_serving()
    one.page.evaluate("document.querySelector('#where').style.color = '#cdd'")
    one.page.evaluate("document.querySelector('#send').textContent = ''")
    faults = "\n".join(one.faults())
    assert "color-contrast" in faults
    assert "button-name" in faults


def test_the_other_colours_are_one_press_away_and_are_remembered(
    server: ServerProcess, visit: Open
) -> None:
    one = visit(server, color_scheme="light")
    page = one.page
    one.until_serving()
    page.locator("#theme-button").press("Enter")
    assert page.evaluate(_BRIGHTNESS) < 128
    assert one.faults() == []
    page.reload()
    assert page.evaluate(_BRIGHTNESS) < 128
    expect(page.locator("#theme-button")).to_have_attribute("aria-pressed", "true")


def test_the_browser_stops_what_would_leave_for_elsewhere(
    server: ServerProcess, visit: Open
) -> None:
    one = visit(server, is_quiet=False)
    one.until_serving()
    tried = "fetch('http://127.0.0.1:9/x').then(() => 'went', () => 'stopped')"
    assert one.page.evaluate(tried) == "stopped"
    assert any("Content Security Policy" in complaint for complaint in one.complaints)
    inline = "document.body.append(Object.assign(document.createElement('script'), {text: 'x=1'}))"
    one.page.evaluate(inline)
    assert one.page.evaluate("typeof x") == "undefined"


def test_a_key_is_asked_for_kept_in_memory_alone_and_a_wrong_one_is_told(
    site: Site, visit: Open
) -> None:
    with running_server(site.model, *site.options("--api-key", KEY), path=site.path) as server:
        one = visit(server, is_quiet=False)
        page = one.page
        expect(page.locator("#key-dialog")).to_be_visible()
        assert one.faults() == []
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-error")).to_contain_text("does not know this key")
        page.keyboard.type(KEY)
        page.keyboard.press("Enter")
        one.until_serving()
        expect(page.locator("#key-dialog")).to_be_hidden()
        page.fill("#question", "Hello")
        page.keyboard.press("Enter")
        until_answered(page)
        assert without_breaks(last_words(page)) == without_breaks(SHOWN)
        stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        assert KEY not in stored
        assert not any("sesame" in address for address in one.asked)
        page.reload()
        expect(page.locator("#key-dialog")).to_be_visible()


def test_a_dead_engine_and_a_lost_server_are_told(site: Site, visit: Open) -> None:
    options = site.options("--dead-engine-grace", "4")
    with running_server(site.model, *options, path=site.path) as server:
        one = visit(server, is_quiet=False)
        one.until_serving()
        os.kill(server.engine_pid(), signal.SIGKILL)
        expect(one.page.locator("#state")).to_have_attribute("data-state", "dead")
        expect(one.page.locator("#trouble")).to_contain_text("SIGKILL")
        assert one.faults() == []
        assert server.end() == 5
        expect(one.page.locator("#state")).to_have_attribute("data-state", "lost")
        expect(one.page.locator("#trouble")).to_contain_text("does not answer")
