"""Messages carry what, where and every problem; device errors cross processes whole."""

from __future__ import annotations

import pickle

import pytest

from dougong.errors import (
    ConfigError,
    ContractError,
    DeviceError,
    DeviceLost,
    DougongError,
    PluginError,
    RequestError,
)


def test_several_problems_are_shown_together() -> None:
    error = ConfigError("It cannot work:", ("a is too small", "b is unknown"))
    assert str(error) == "It cannot work:\n  - a is too small\n  - b is unknown"
    assert error.problems == ("a is too small", "b is unknown")


def test_a_contract_error_lists_every_problem_and_is_the_plugins_fault() -> None:
    error = ContractError("acme:Platform", ("no runtime",), plugin="acme")
    assert isinstance(error, PluginError)
    assert error.plugin == "acme"
    assert str(error) == "acme:Platform does not fit the contract:\n  - no runtime"


def test_a_request_error_names_its_field() -> None:
    assert RequestError("top_p=2", field="top_p").field == "top_p"


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("It cannot work:", ("a", "b")),
        RequestError("top_p=2", field="top_p"),
        ContractError("acme:Platform", ("no runtime",), plugin="acme"),
        PluginError("broken", plugin="acme"),
    ],
)
def test_every_error_survives_a_pickle_with_its_fields(error: DougongError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("kind", DeviceError.__subclasses__())
def test_device_errors_keep_device_rank_and_step_through_a_pickle(kind: type[DeviceError]) -> None:
    error = kind("gone", device_index=3, rank=1, step_id=9)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "gone (device=3, rank=1, step=9)"


def test_what_is_unknown_is_left_out_of_the_message() -> None:
    assert str(DeviceLost("gone")) == "gone"
    assert issubclass(DeviceLost, DougongError)
