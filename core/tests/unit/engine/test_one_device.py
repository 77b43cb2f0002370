"""One engine runs on one device: which one is told, and more are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dougong import LLM, SamplingParams
from dougong.config import EngineArgs
from dougong.engine.one_device import open_one_device, open_present_device
from dougong.errors import ConfigError, EngineDeadError, KernelFault
from tests.support.null_engine import NullModels, install_null_platform

FOUR: dict[str, Any] = {"platform": "null", "num_kv_blocks": 100}


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NullModels:
    """The null platform with four devices."""
    install_null_platform(tmp_path / "four", monkeypatch, "plugin_of_four")
    return NullModels(tmp_path / "models")


@pytest.mark.parametrize("open_it", [open_one_device, open_present_device])
def test_more_devices_than_one_are_refused(four: NullModels, open_it: Any) -> None:
    with pytest.raises(ConfigError, match=r"--devices 0,1 .*0 \(Null\), 1 \(Null\).*--devices 0"):
        open_it(EngineArgs(model="org/big", devices="0,1", platform="null"))


def test_whoever_only_asks_is_told_of_capability_files(null_models: NullModels) -> None:
    with pytest.raises(ConfigError, match="dougong capabilities"):
        open_present_device(EngineArgs(model="org/big", platform="typo"))


def test_the_automatic_choice_among_several_is_told_with_its_reason(four: NullModels) -> None:
    with LLM(four.write(), **FOUR) as llm:
        assert llm.report.devices == ("Null",)
        assert "device 0 (Null): the first of 4 alike" in llm.report.platform_reasons[-1]
        assert "--devices" in llm.report.platform_reasons[-1]


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_the_device_that_was_asked_for_is_the_one_that_runs(
    four: NullModels, in_own_process: bool
) -> None:
    model = four.write(fail_at_step=0)
    with LLM(model, devices="1", in_own_process=in_own_process, **FOUR) as llm:
        with pytest.raises(EngineDeadError) as caught:
            llm.generate([5], SamplingParams(max_tokens=1, temperature=0.0))
        cause = caught.value.__cause__
        assert isinstance(cause, KernelFault)
        assert cause.device_index == 1
