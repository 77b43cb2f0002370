from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dougong.engine.stop_strings import StopStrings


def stream(
    pieces: list[str], stops: list[str], *, is_included: bool = False
) -> tuple[list[str], str | None]:
    """What is shown after each piece and at the end, and the stop string found."""
    watcher = StopStrings(stops, is_included=is_included)
    shown = [watcher.push(piece) for piece in pieces]
    return [*shown, watcher.flush()], watcher.matched


@pytest.mark.parametrize(
    "pieces",
    [["one STOP two"], ["one ST", "OP two"], ["one S", "TO", "P two"], list("one STOP two")],
    ids=["in one piece", "over two", "over three", "by character"],
)
def test_a_stop_string_is_found_however_it_is_cut(pieces: list[str]) -> None:
    shown, matched = stream(pieces, ["STOP"])
    assert "".join(shown) == "one "
    assert matched == "STOP"


def test_an_included_stop_string_is_shown_and_nothing_after_it() -> None:
    shown, matched = stream(["one ST", "OP two"], ["STOP"], is_included=True)
    assert shown == ["one ST", "OP", ""]
    assert matched == "STOP"


def test_a_near_miss_is_delivered() -> None:
    shown, matched = stream(["one ST", "ART"], ["STOP"])
    assert shown == ["one ", "START", ""]
    assert matched is None


def test_a_near_miss_at_the_end_is_delivered() -> None:
    assert stream(["one STO"], ["STOP"])[0] == ["one ", "STO"]


def test_of_one_stop_string_that_begins_another_the_first_complete_counts() -> None:
    assert stream(["xabc"], ["abc", "ab"]) == (["x", ""], "ab")


def test_of_two_complete_at_one_character_the_longest_counts() -> None:
    assert stream(["xab"], ["b", "ab"]) == (["x", ""], "ab")


def test_a_failed_beginning_may_hold_the_real_one() -> None:
    assert stream(["a", "a", "b"], ["ab"]) == (["", "a", "", ""], "ab")


def test_text_after_the_end_is_not_shown() -> None:
    watcher = StopStrings(["ab"], is_included=False)
    assert watcher.push("xab") == "x"
    assert watcher.push("more") == ""
    assert watcher.flush() == ""


@settings(max_examples=300, deadline=None)
@given(
    text=st.text("abc", max_size=24),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.sets(st.integers(1, 23)),
    is_included=st.booleans(),
)
def test_cuts_change_nothing_and_no_more_is_held_back_than_needed(
    text: str, stops: list[str], cuts: set[int], is_included: bool
) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    whole, matched_whole = stream([text], stops, is_included=is_included)
    shown, matched = stream(pieces, stops, is_included=is_included)
    assert "".join(shown) == "".join(whole)
    assert matched == matched_whole
    seen = 0
    for place, piece in zip(places[1:], shown, strict=False):
        seen += len(piece)
        held = text[seen:place]
        is_over = matched is not None and seen + len(held) >= len("".join(shown))
        assert not held or is_over or any(stop.startswith(held) for stop in stops)
        assert not (held and is_included) or is_over


def test_what_is_complete_in_text_that_does_not_count_is_passed_over_for_good() -> None:
    for is_included in (False, True):
        watcher = StopStrings(["b", "abX"], is_included=is_included)
        shown = watcher.push("ab", is_counting=False)
        shown += watcher.push("c")
        assert shown == "abc"
        assert watcher.matched is None


def test_what_begins_in_text_that_does_not_count_is_held_back_and_found() -> None:
    watcher = StopStrings(["STOP"], is_included=False)
    assert watcher.push("STOP ST", is_counting=False) == "STOP "
    assert watcher.push("OP") == ""
    assert watcher.matched == "STOP"


def test_a_longer_one_may_grow_out_of_one_that_was_passed_over() -> None:
    watcher = StopStrings(["STOP", "STOP it"], is_included=False)
    assert watcher.push("a STOP", is_counting=False) == "a "
    assert watcher.push(" it") == ""
    assert watcher.matched == "STOP it"
