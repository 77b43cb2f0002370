from __future__ import annotations

import pytest

from dougong.cli.exit_codes import ExitCode, exit_code
from dougong.errors import (
    CheckpointError,
    ConfigError,
    ContractError,
    DeviceLost,
    DougongError,
    EngineDeadError,
    PlatformSelectionError,
    PluginError,
    RequestError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (CheckpointError("x"), 2),
        (PlatformSelectionError("x"), 2),
        (PluginError("x"), 3),
        (ContractError("x", ("y",)), 3),
        (RequestError("x"), 4),
        (DeviceLost("x"), 5),
        (EngineDeadError("x"), 5),
        (DougongError("x"), 1),
    ],
)
def test_each_kind_of_error_has_the_code_of_who_can_act(error: DougongError, code: int) -> None:
    assert exit_code(error) is ExitCode(code)
