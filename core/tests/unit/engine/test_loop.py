from __future__ import annotations

import queue

import pytest

from dougong.config import EngineArgs
from dougong.contracts import SchedulerOutput, StepHandle
from dougong.engine.commands import Abort, Add, Answer, Ask, Command, Died, Event, Stop
from dougong.engine.core import EngineCore
from dougong.engine.loop import EngineLoop
from dougong.errors import KernelFault, PluginError
from dougong.messages import Request, SamplingParams
from dougong.testing.null_worker import NullWorker
from tests.support.null_engine import NULL_OPTIONS, NullModels


def request(request_id: str, *, max_tokens: int = 3) -> Request:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    return Request(request_id=request_id, prompt_token_ids=(5, 6), sampling_params=params)


def run(model: str, *commands: Command) -> list[Event]:
    """Give all commands at once, run the loop to its end, return the events."""
    inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
    for command in commands:
        inbox.put(command)
    events: list[Event] = []
    args = EngineArgs(model=model, **NULL_OPTIONS)

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, list) and event[0].finish_reason is not None:
            inbox.put(Stop())

    EngineLoop(EngineCore.start(args), inbox, emit).run()
    return events


def test_requests_run_to_their_end(null_models: NullModels) -> None:
    events = run(null_models.write(), Add((request("a"),)))
    assert [len(event) for event in events if isinstance(event, list)] == [1, 1, 1]


def test_what_was_aborted_brings_nothing_more(null_models: NullModels) -> None:
    events = run(
        null_models.write(), Add((request("a", max_tokens=9), request("b"))), Abort(("a",))
    )
    assert {delta.request_id for event in events if isinstance(event, list) for delta in event} == {
        "b"
    }


def test_a_refused_request_comes_back_with_its_reason_and_ends_no_other(
    null_models: NullModels,
) -> None:
    events = run(null_models.write(), Add((request("b"), request("b"))))
    assert isinstance(events[0], list)
    (refused,) = events[0]
    assert refused.finish_reason == "abort"
    assert refused.error is not None
    assert "in use" in refused.error


def test_questions_are_answered_with_their_tickets(null_models: NullModels) -> None:
    events = run(null_models.write(), Ask(7, "health"), Ask(8, "stats"), Stop())
    health, stats = events
    assert health == Answer(7, None)
    assert isinstance(stats, Answer)
    assert stats.ticket == 8
    assert stats.stats is not None


@pytest.mark.parametrize("step", [0, 1])
def test_a_failure_is_the_last_event(null_models: NullModels, step: int) -> None:
    events = run(null_models.write(fail_at_step=step), Add((request("a"),)))
    last = events[-1]
    assert isinstance(last, Died)
    assert isinstance(last.error, KernelFault)
    assert len(events) == step + 1


def test_a_worker_that_cannot_tell_of_itself_ends_no_request(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(self: NullWorker) -> dict[str, int]:
        raise ZeroDivisionError("no steps yet")

    monkeypatch.setattr(NullWorker, "collect", collect)
    events = run(null_models.write(), Add((request("a"),)), Ask(7, "stats"))
    (answer,) = (event for event in events if isinstance(event, Answer))
    assert isinstance(answer.error, PluginError)
    assert "ZeroDivisionError: no steps yet" in str(answer.error)
    assert [len(event) for event in events if isinstance(event, list)] == [1, 1, 1]
    assert not any(isinstance(event, Died) for event in events)


def test_a_vendor_that_ends_the_program_in_a_step_ends_the_engine_and_is_told(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(self: NullWorker, step: SchedulerOutput, intermediate: None = None) -> StepHandle:
        raise SystemExit(3)

    monkeypatch.setattr(NullWorker, "submit", leave)
    events = run(null_models.write(), Add((request("a"),)))
    assert isinstance(events[-1], Died)
    assert isinstance(events[-1].error, SystemExit)
