from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import pairwise

import pytest

from dougong_conformance.judging import Metric
from dougong_conformance.report.html import to_html
from dougong_conformance.report.model import make_report
from dougong_conformance.results import RunRecord
from tests.unit.report import made_up
from tests.unit.report.page import Element, read_page

RUNS = (
    made_up.passing, made_up.failing, made_up.empty, made_up.smoke, made_up.on_a_chip,
)  # fmt: skip
TEMPLATES = files("dougong_conformance.report").joinpath("templates")


@cache
def html(make: Callable[[], RunRecord]) -> str:
    return to_html(make_report(make(), requirements=made_up.requirements()))


@cache
def page(make: Callable[[], RunRecord]) -> Element:
    return read_page(html(make))


@pytest.mark.parametrize("make", RUNS)
def test_a_page_is_one_file_that_loads_nothing(make: Callable[[], RunRecord]) -> None:
    root = page(make)
    assert not [one for one in root.all("script") if "src" in one.attributes]
    assert {one.attributes["href"] for one in root.all("link")} == {"data:,"}
    assert not root.all("img") + root.all("iframe")
    own = "".join(one.whole for one in root.all("style") + root.all("script"))
    assert "url(" not in own
    assert "@import" not in own
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(", own)
    assert len(own.encode()) <= 200_000


@pytest.mark.parametrize("make", RUNS)
def test_headings_never_leave_out_a_level_and_tables_say_what_their_heads_are_of(
    make: Callable[[], RunRecord],
) -> None:
    root = page(make)
    levels = [int(one.tag[1]) for one in root.all() if re.fullmatch("h[1-6]", one.tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all("scope" in one.attributes for one in root.all("th"))
    ids = [one.attributes["id"] for one in root.all() if "id" in one.attributes]
    assert len(set(ids)) == len(ids)
    for one in root.all("section"):
        name = one.attributes.get("aria-labelledby")
        assert name is None or name in ids
    assert root.all("html")[0].attributes["lang"] == "en"


@pytest.mark.parametrize("make", RUNS)
def test_colour_is_never_alone_every_mark_has_a_symbol_and_a_word(
    make: Callable[[], RunRecord],
) -> None:
    for one in page(make).all(of_class="pill"):
        assert re.search(r"[^\s\w] .*[a-z]{3}", one.whole), one.whole
    for cell in page(make).all(of_class="grid")[0].all("a"):
        assert re.search(r"(passed|failed|waived|incomplete|not claimed)", cell.whole)


def test_the_verdict_stands_on_top_with_the_last_line_and_the_exit_code() -> None:
    top = page(made_up.failing).all("header")[0]
    assert top.all("h1")[0].whole == "✗ Core 1.0 failed"
    assert top.all(of_class="last")[0].whole.startswith("dougong-conform: exit 6: a waiver")
    assert "Device double." in top.whole
    assert "Not a certification." not in top.whole
    assert "Not a certification." in page(made_up.smoke).all("header")[0].whole


def test_failures_come_first_and_say_spec_measurement_and_one_command() -> None:
    main = page(made_up.failing).all("main")[0]
    first = main.all("section")[0]
    assert first.attributes["id"] == "failures"
    cards = first.all("article")
    assert [one.attributes["data-outcome"] for one in cards] == [
        *("device_lost", "crash", "timeout", "error", "fail", "fail", "waiver_violation"),
    ]
    (linear,) = [one for one in cards if "ops.linear" in one.whole]
    assert "linear multiplies with the transposed weight" in linear.whole
    assert "31.4 , limit 3" in linear.whole
    assert "dougong-conform repro out 'ops.linear[bfloat16]'" in linear.whole
    assert [one.whole for one in linear.all("button")] == ["copy"]
    (crash,) = [one for one in cards if "attention.decode" in one.whole]
    assert "Segmentation fault" in crash.all("pre")[0].whole


def test_the_grid_has_every_profile_and_every_dtype_in_the_order_of_the_claim() -> None:
    (grid,) = page(made_up.failing).all(of_class="grid")
    heads = [one.whole for one in grid.all("thead")[0].all("th")]
    assert heads == ["profile", "verdict", "no dtype", "float32", "bfloat16", "float16"]
    rows = {one.all("th")[0].whole: one for one in grid.all("tbody")[0].all("tr")}
    assert len(rows) == 15
    assert rows["ops"].all("a")[2].whole == "✗ 6/7 failed"
    assert rows["streams"].whole == "streams ○ incomplete ○ 1/2 incomplete · · ·"
    assert "kv +1 provisional" in rows


def test_every_rung_stands_there_and_only_what_was_reached_says_so() -> None:
    rungs = page(made_up.passing).all(of_class="ladder")[0].all("li")
    assert [one.all("h3")[0].whole for one in rungs] == [
        *(f"L{n} ∅ no evidence" for n in range(3)),
        "L3 ✓ reached",
        *(f"L{n} ∅ no evidence" for n in range(4, 7)),
    ]
    assert "dougong-conform certify --plugin sim" in rungs[3].whole


def test_every_measurement_is_drawn_with_its_share_of_the_limit() -> None:
    strips = page(made_up.failing).all(of_class="strip")[1:]
    first = strips[0]
    assert first.whole.startswith("ops.rotary")
    assert "✗ over: infinite of 3 (max error, float16)" in first.whole
    over = [one.all("code")[0].whole for one in strips if one.all(of_class="over")]
    assert over == ["ops.rotary", "ops.linear", "attention.softcap"]
    dots = strips[1].all(of_class="dot")
    assert {"circle", "square", "diamond"} == {name for one in dots for name in one.classes} & {
        *("circle", "square", "diamond"),
    }
    assert any(one.attributes["style"] == "left:80.4%" for one in dots)  # log10(31.4 / 3) of 5


def test_what_was_not_reached_waived_provisional_or_warned_of_is_listed() -> None:
    root = page(made_up.failing)
    sections = {one.attributes.get("id"): one.whole for one in root.all("section")}
    assert "no result engine.preemption" in sections["missing"]
    assert "SIM-2026-001" in sections["waivers"]
    assert "expects a failure" in sections["waivers"]
    assert "rms error 0.71" in sections["warnings"]
    assert "lora.unload" in sections["provisional"]
    assert "performance.no_host_copies" in sections["advice"]
    assert "torch.softmax replaced by dougong_sim.fast:softmax" in sections["environment"]
    assert "SIM_DEVICE_COUNT" in sections["environment"]


def test_a_run_in_which_nothing_ran_says_so_everywhere() -> None:
    text = page(made_up.empty).all("main")[0].whole
    assert "Nothing ran, so nothing failed and nothing passed." in text
    assert "Nothing was measured." in text
    assert "No case has a result." in text
    assert page(made_up.empty).all("h1")[0].whole == "○ Core 1.0 incomplete"


def test_whatever_a_plugin_says_cannot_become_a_part_of_the_page() -> None:
    record = made_up.failing()
    bad = '</pre><script>alert("x")</script>'
    rows = tuple(
        replace(one, reason=bad, traceback=bad, warnings=(bad,), metrics=(Metric(bad, 1.0, 3.0),))
        for one in record.results
    )
    head = replace(record.header, machine=bad, environment={bad: bad}, patches=(bad,))
    record = replace(record, results=rows, header=head)
    text = to_html(make_report(record, requirements=made_up.requirements()))
    assert "<script>alert" not in text
    assert len(read_page(text).all("script")) == 1


def test_every_case_can_be_filtered_by_words_and_outcome() -> None:
    root = page(made_up.failing)
    cases = [one for one in root.all("tr") if one.attributes.get("data-kind") == "case"]
    assert len(cases) == len(made_up.failing().results)
    for one in cases:
        text = one.attributes["data-text"]
        assert text == text.lower()
        assert f"profile:{text.partition('.')[0]}" in text
        assert re.search(r"dtype:(none|float32|bfloat16|float16)", text)
    boxes = [one.attributes["value"] for one in root.all("input") if "value" in one.attributes]
    assert set(boxes) == {one.outcome.value for one in made_up.failing().results}


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _palettes() -> list[dict[str, str]]:
    css = TEMPLATES.joinpath("style.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks[:2]]


@pytest.mark.parametrize("palette", _palettes(), ids=["light", "dark"])
def test_every_text_has_enough_contrast_on_what_it_stands_on(palette: dict[str, str]) -> None:
    for ink in ("ink", "soft", "accent", "good", "bad", "warn", "grey"):
        for ground in ("bg", "card", "code"):
            assert _contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)
    for tone in ("good", "bad", "warn", "grey"):
        assert _contrast(palette[tone], palette[f"{tone}-bg"]) >= 4.5, tone
    assert _contrast(palette["ink"], palette["warn-bg"]) >= 7


def test_the_page_follows_the_scheme_of_the_reader_and_can_be_printed() -> None:
    css = TEMPLATES.joinpath("style.css").read_text("utf-8")
    for part in ("prefers-color-scheme: dark", "@media print", "prefers-reduced-motion"):
        assert part in css
