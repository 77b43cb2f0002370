from __future__ import annotations

import pickle
from typing import Any

import pytest

from dougong.engine.commands import Abort, Add, Answer, Command, Died, Event
from dougong.engine.core import EngineStats
from dougong.engine.wire import pack_command, pack_event, unpack_command, unpack_event
from dougong.errors import (
    ConfigError,
    ContractError,
    DougongError,
    KernelFault,
    PluginError,
    RequestError,
)
from dougong.messages import (
    FinishReason,
    Request,
    RequestDelta,
    SamplingParams,
    TokenLogprobs,
)


def test_what_a_step_produced_survives() -> None:
    deltas: Event = [
        RequestDelta("a", [1]),
        RequestDelta(
            "b",
            [2],
            finish_reason=FinishReason.STOP,
            stop_token_id=2,
            logprobs=[TokenLogprobs(2, -0.5, ((2, -0.5), (3, -1.5)))],
            num_cached_tokens=16,
            prompt_logprobs=[TokenLogprobs(5, -2.5, ((1, -0.5),)), TokenLogprobs(6, -0.1)],
        ),
        RequestDelta("c", [], finish_reason=FinishReason.ABORT, error="no"),
    ]
    assert unpack_event(pack_event(deltas)) == deltas


@pytest.mark.parametrize(
    "command",
    [
        Abort(("a", "b")),
        Add(
            (
                Request(
                    request_id="a",
                    prompt_token_ids=(1, 2),
                    sampling_params=SamplingParams(stop="x", seed=3),
                    eos_token_ids=frozenset({2}),
                ),
            )
        ),
    ],
)
def test_a_command_survives(command: Command) -> None:
    assert unpack_command(pack_command(command)) == command


def arrived(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001 - any error crosses
        event = unpack_event(pack_event(Died(raised)))
    assert isinstance(event, Died)
    return event.error


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("cannot work:", ("one", "two")),
        ContractError("acme:Class", ("it lacks x",), plugin="acme"),
        RequestError("no", field="prompt"),
        KernelFault("failed", device_index=1, rank=2, step_id=3),
    ],
)
def test_an_error_arrives_with_its_kind_text_and_fields(error: DougongError) -> None:
    copy = arrived(error)
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    fields = {name: value for name, value in vars(copy).items() if name != "__notes__"}
    assert fields == vars(error)


def test_an_error_of_another_kind_arrives_by_name_with_its_traceback() -> None:
    copy = arrived(ZeroDivisionError("by nothing"))
    assert isinstance(copy, DougongError)
    assert "ZeroDivisionError: by nothing" in str(copy)
    assert "test_wire.py" in copy.__notes__[0]


class VendorFault(KernelFault):
    """Of a package that the other process may lack."""


class TextlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Stubborn:
    """Packs, and cannot be unpacked."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise EOFError("not here")


def test_a_class_from_elsewhere_arrives_by_name() -> None:
    copy = arrived(VendorFault("failed", rank=2))
    assert type(copy) is DougongError
    assert str(copy) == "VendorFault: failed (rank=2)"
    assert "test_wire.py" in copy.__notes__[0]


@pytest.mark.parametrize("held", [lambda: None, Stubborn()])
def test_an_error_that_holds_what_cannot_cross_arrives_by_name(held: Any) -> None:
    error = ConfigError("cannot work", ("one",))
    error.problems = held
    copy = arrived(error)
    assert type(copy) is DougongError
    assert str(copy) == "ConfigError: cannot work\n  - one"


def test_an_error_without_a_text_arrives() -> None:
    assert "TextlessError" in str(arrived(TextlessError()))


def test_an_error_is_sent_as_a_copy_and_stays_as_it_was() -> None:
    error = KernelFault("failed")
    error.add_note("mine")
    assert arrived(error).__notes__[0] == "mine"
    assert error.__notes__ == ["mine"]


def stats(value: object) -> EngineStats:
    scheduler: Any = None  # not looked at
    return EngineStats(scheduler=scheduler, times={}, ranks=({"value": value},))


def test_an_answer_survives() -> None:
    for answer in (Answer(3, None), Answer(2**40, stats([1, "two"]))):
        assert unpack_event(pack_event(answer)) == answer


@pytest.mark.parametrize("value", [lambda: None, Stubborn()])
def test_an_answer_that_cannot_cross_is_answered_with_the_reason(value: object) -> None:
    answer = unpack_event(pack_event(Answer(3, stats(value))))
    assert isinstance(answer, Answer)
    assert (answer.ticket, answer.stats) == (3, None)
    assert isinstance(answer.error, PluginError)
    assert "plain data" in str(answer.error)


def test_the_error_of_an_answer_crosses_like_any_other() -> None:
    answer = unpack_event(pack_event(Answer(3, None, VendorFault("failed"))))
    assert isinstance(answer, Answer)
    assert str(answer.error) == "VendorFault: failed"


def test_an_event_that_cannot_be_read_raises() -> None:
    with pytest.raises(EOFError):
        unpack_event(b"o" + pickle.dumps(Stubborn()))
