from __future__ import annotations

from dataclasses import replace

from dougong_conformance.report.markdown import MAX_BYTES, to_markdown
from dougong_conformance.report.model import make_report
from dougong_conformance.results import RunRecord
from tests.unit.report import made_up


def markdown(record: RunRecord) -> str:
    return to_markdown(make_report(record, requirements=made_up.requirements()))


def test_the_verdict_is_the_first_line_and_the_last_line_of_the_command_follows() -> None:
    lines = markdown(made_up.passing()).splitlines()
    assert lines[0] == (
        "# ✓ dougong-sim 0.1.0 (platform sim): Core 1.0 passed, Ext 10/12, 0 waived"
    )
    assert lines[2].startswith("`dougong-conform: exit 0: ")
    assert "no statement about a chip" in lines[4]


def test_failures_come_before_everything_but_the_table_and_say_how_to_repeat_them() -> None:
    text = markdown(made_up.failing())
    order = ["| profile |", "## Failures (7)", "## Required checks", "## Waivers", "## Warnings"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "* The specification says: linear multiplies" in text
    assert "* max error: 31.4 (limit 3)" in text
    assert "* Again: `dougong-conform repro out 'ops.linear[bfloat16]'`" in text
    assert '<a id="missing"></a>' in text
    assert "engine.preemption" in text


def test_every_profile_has_a_numerator_and_a_denominator() -> None:
    text = markdown(made_up.failing())
    assert "| ops | ✗ failed | 20/25 | 2 | 0 | 0 | 3 | 0 |" in text
    assert "%" not in text


def test_what_is_provisional_or_not_claimed_is_told() -> None:
    text = markdown(made_up.failing())
    assert "## Provisional: told, never counted (3)" in text
    assert "* attention.sinks" in text
    assert "* patched: torch.softmax replaced" in text
    assert "## Recommendations not met: they fail nothing (1)" in text


def test_a_page_that_grows_too_long_is_cut_and_says_so() -> None:
    record = made_up.failing()
    long = "very long " * 300
    rows = tuple(replace(one, reason=long, warnings=(long * 3,)) for one in record.results)
    text = markdown(replace(record, results=rows))
    assert len(text.encode()) <= MAX_BYTES == 60_000
    many = tuple(
        replace(one, id=f"{one.id}{n}", reason=long) for n in range(60) for one in record.results
    )
    text = markdown(replace(record, results=many))
    assert len(text.encode()) <= MAX_BYTES
    assert "more; see `report.html`" in text
    names = tuple(f"ops.check_{n}" for n in range(500))
    text = markdown(replace(record, footer=replace(record.footer, missing=names)))
    assert "* and 440 more" in text


def test_parts_that_do_not_fit_are_left_out_whole(monkeypatch: object) -> None:
    record = made_up.failing()
    problems = tuple(f"problem {n}: " + "é" * 590 for n in range(60))
    head = replace(record.header, patches=problems, tampering=problems)
    footer = replace(record.footer, waiver_problems=problems)
    text = markdown(replace(record, header=head, footer=footer))
    assert len(text.encode()) <= MAX_BYTES
    assert "**Truncated**: " in text


def test_a_reason_breaks_no_table_and_no_page() -> None:
    record = made_up.failing()
    rows = tuple(replace(one, reason="a | b\n<script>c") for one in record.results)
    text = markdown(replace(record, results=rows))
    assert "<script>" not in text
    assert "a \\| b &lt;script>c" in text


def test_a_run_in_which_nothing_ran_claims_nothing() -> None:
    text = markdown(made_up.empty())
    assert text.startswith("# ○ dougong-sim 0.1.0 (platform sim): Core 1.0 incomplete, Ext 0/12")
    assert "exit 5: nothing ran" in text
    assert "✓" not in text
