from __future__ import annotations

import pytest

from dougong.engine.commands import Abort, Add, Command, Died, Event
from dougong.engine.wire import pack_command, pack_event, unpack_command, unpack_event
from dougong.errors import ConfigError, ContractError, DougongError, KernelFault, RequestError
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
