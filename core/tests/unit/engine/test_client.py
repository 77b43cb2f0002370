from __future__ import annotations

import pytest

from dougong import LLM, SamplingParams
from dougong.contracts import SchedulerOutput, StepHandle
from dougong.errors import EngineDeadError
from dougong.testing.null_worker import NullWorker
from tests.support.null_engine import NULL_OPTIONS, NullModels

ONE = SamplingParams(max_tokens=1, temperature=0.0)


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(self: NullWorker, step: SchedulerOutput, intermediate: None = None) -> StepHandle:
        raise error

    monkeypatch.setattr(NullWorker, "submit", fail)


def test_a_vendors_wish_to_end_the_program_ends_the_engine_alone(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, SystemExit(3))
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        for _ in range(2):
            with pytest.raises(EngineDeadError, match="SystemExit"):
                llm.generate([5], ONE)


def test_an_interrupted_step_interrupts_the_caller_and_is_the_last_one(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        with pytest.raises(KeyboardInterrupt):
            llm.generate([5], ONE)
        with pytest.raises(EngineDeadError, match="KeyboardInterrupt"):
            llm.generate([5], ONE)
