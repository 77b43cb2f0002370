"""The report in a real browser. Set `SCREENSHOTS` to a folder to keep the pictures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dougong_conformance.report.html import to_html
from dougong_conformance.report.model import make_report
from dougong_conformance.results import RunRecord
from tests.browser.browser import Browser, find_browser
from tests.unit.report import made_up

pytestmark = [pytest.mark.extra, pytest.mark.timeout(300)]

RUNS: dict[str, Callable[[], RunRecord]] = {
    "passing": made_up.passing,
    "failing": made_up.failing,
    "empty": made_up.empty,
}
LIGHT, DARK = (0xF6, 0xF6, 0xF3), (0x12, 0x13, 0x17)

# Runs after the page's own script and tells the page around it what it saw.
_PROBE = """
<script>
addEventListener("load", () => {
  const form = document.getElementById("filter");
  const field = form.elements.q;
  const root = document.documentElement;
  const isShown = (one) => one.getClientRects().length > 0;
  const cases = () => [...document.querySelectorAll("[data-kind=case]")].filter(isShown).length;
  const press = (key) =>
    document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const sections = () =>
    [...document.querySelectorAll("main > section")].filter(isShown).map((one) => one.id);
  const seen = {
    width: innerWidth,
    overflow: root.scrollWidth - innerWidth,
    wide: [...document.querySelectorAll("main > *, header > *, .bar")]
      .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.id),
    cases: cases(),
    sections: sections(),
    told: document.getElementById("shown").textContent,
    verdict: document.querySelector("h1").textContent.trim(),
    dots: [...document.querySelectorAll(".strip .dot")].filter(isShown).length,
  };
  press("/");
  seen.focused = document.activeElement.name || "";
  field.value = "rotary";
  form.dispatchEvent(new Event("input"));
  seen.rotary = cases();
  seen.rotaryTold = document.getElementById("shown").textContent;
  field.value = "";
  const box = form.querySelector("input[value=fail]");
  if (box) { box.checked = true; }
  form.dispatchEvent(new Event("input"));
  seen.failed = cases();
  seen.failedSections = sections();
  press("Escape");
  setTimeout(() => {
    seen.afterEscape = cases();
    const link = document.querySelector(".grid a");
    if (link) { link.click(); }
    setTimeout(() => { seen.afterLink = cases(); seen.query = field.value;
      parent.postMessage(JSON.stringify(seen), "*"); }, 50);
  }, 50);
});
</script>
"""

_LISTENER = """<!doctype html>
<style>iframe { border: 0 }</style>
<script>
addEventListener("message", (event) => document.body.setAttribute("data-seen", event.data));
</script>
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(find_browser(), tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, make in RUNS.items():
        text = to_html(make_report(make(), requirements=made_up.requirements()))
        path = folder / f"{name}.html"
        path.write_text(text, "utf-8")
        found[name] = path.as_uri()
    return found


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = os.environ.get("SCREENSHOTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def probe(browser: Browser, folder: Path, run: str, width: int) -> dict[str, Any]:
    """What a page looks like in a frame of some width; a window itself is never below 500."""
    text = to_html(make_report(RUNS[run](), requirements=made_up.requirements()))
    (folder / "probed.html").write_text(text + _PROBE, "utf-8")
    wrapper = folder / "frame.html"
    wrapper.write_text(
        f'{_LISTENER}<iframe src="probed.html" width="{width}" height="900">', "utf-8"
    )
    text = browser.dom(wrapper.as_uri(), width=width + 100)
    found = re.search(r'data-seen="([^"]*)"', text)
    assert found, text[-2000:]
    seen: dict[str, Any] = json.loads(unescape(found[1]))
    return seen


@pytest.mark.parametrize(
    ("name", "run", "width", "height", "is_dark", "query"),
    [
        ("light", "failing", 1280, 3400, False, ""),
        ("dark", "failing", 1280, 3400, True, ""),
        ("passing-dark", "passing", 1280, 2600, True, ""),
        ("phone", "failing", 390, 2600, False, ""),
        ("phone-dark", "passing", 390, 2000, True, ""),
        ("filtered", "failing", 1280, 1400, False, "#q=profile:attention&outcome=crash,timeout"),
        ("empty", "empty", 1280, 1600, False, ""),
    ],
)
def test_every_state_is_really_drawn(
    browser: Browser,
    pages: dict[str, str],
    pictures: Path,
    name: str,
    run: str,
    width: int,
    height: int,
    is_dark: bool,
    query: str,
) -> None:
    picture = browser.screenshot(
        pages[run] + query, pictures / f"{name}.png", width=width, height=height, is_dark=is_dark
    )
    assert (picture.width, picture.height) == (width, height)
    assert picture.num_distinct_rows > height / 4
    assert picture.corner == (DARK if is_dark else LIGHT)


@pytest.mark.parametrize("width", [390, 768, 1280, 1920])
@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_wider_than_the_window(
    browser: Browser, tmp_path: Path, run: str, width: int
) -> None:
    seen = probe(browser, tmp_path, run, width)
    assert seen["width"] == width
    assert seen["overflow"] <= 0
    assert seen["wide"] == []


def test_the_filter_works_by_keyboard_and_by_the_cells_of_the_grid(
    browser: Browser, tmp_path: Path
) -> None:
    seen = probe(browser, tmp_path, "failing", 1280)
    total = len(made_up.failing().results)
    assert seen["verdict"] == "✗ Core 1.0 failed"
    assert (seen["cases"], seen["told"]) == (total, f"{total} cases")
    assert seen["sections"][0] == "failures"
    assert seen["dots"] > 40
    assert seen["focused"] == "q"
    assert (seen["rotary"], seen["rotaryTold"]) == (3, f"3 of {total} cases fit")
    assert seen["failed"] == 4
    assert "failures" in seen["failedSections"]
    assert "warnings" not in seen["failedSections"]
    assert seen["afterEscape"] == total
    assert (seen["afterLink"], seen["query"]) == (3, "profile:discovery dtype:none")
