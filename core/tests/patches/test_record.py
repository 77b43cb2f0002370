"""Every row of the record is shown by a test that is there, or says that there is nothing yet."""

from __future__ import annotations

import pytest

from tests.patches.record import NUM_ITEMS, PAGE, problems_of, rows_of

TEXT = PAGE.read_text("utf-8")
A_TEST = "core/tests/patches/test_ops.py::test_each_piece_of_sampling_is_an_op"
A_RECORD = "adr/0017-what-needs-no-hook-yet.md#sleep"
PLANTED: dict[str, tuple[str, str, str]] = {
    "a test that is gone": (A_TEST, A_TEST.replace("each", "every"), "has no test test_every"),
    "a file that is gone": (A_TEST, A_TEST.replace("test_ops", "test_opps"), "there is no file"),
    "a helper for a test": (A_TEST, "core/tests/patches/record.py::rows_of", "has no test rows_of"),
    "a test of the core alone": (
        A_TEST,
        "core/tests/unit/test_errors.py::test_several_problems_are_shown_together",
        "installs no wheel from outside",
    ),
    "a section that is gone": (A_RECORD, A_RECORD + "ing", "has no section sleeping"),
    "a record that is gone": (A_RECORD, A_RECORD.replace("0017", "0000"), "there is no docs/adr"),
    "a row without evidence": (f"`{A_TEST}`", "", "shown by tests, or by a decision record"),
    "a row with words for evidence": (f"`{A_TEST}`", "see the code", "shown by tests, or"),
    "a row that counts twice": ("| 15 |", "| 16 |", f"73 items; the record has {NUM_ITEMS}"),
    "a row with a cell too few": ("| 15 |", "|", "five cells a row"),
}


def test_every_row_is_shown_by_a_test_or_stands_in_a_decision_record() -> None:
    assert list(problems_of(TEXT)) == []
    assert len(rows_of(TEXT)) > 40


@pytest.mark.parametrize("case", PLANTED)
def test_what_does_not_hold_is_found(case: str) -> None:
    old, new, told = PLANTED[case]
    assert old in TEXT
    assert any(told in problem for problem in problems_of(TEXT.replace(old, new, 1)))
