"""Canaries: a judge that errs is found out."""

from __future__ import annotations

import pytest

from dougong_conformance.judging import Judge
from dougong_conformance.runner import canary


def test_a_sound_judge_has_no_problem() -> None:
    assert canary.problems() == []


def test_a_judge_that_passes_everything_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judge, "close", lambda *args, **kwargs: None)
    assert len(canary.problems()) == 2


def test_a_judge_that_fails_everything_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def close(self: Judge, *args: object, **kwargs: object) -> None:
        self.fail("no")

    monkeypatch.setattr(Judge, "close", close)
    assert canary.problems() == ["a canary that is right was failed"]
