from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dougong import LLM, SamplingParams
from dougong.checkpoint import resolve_reference
from dougong.config import EngineArgs
from dougong.contracts import ConfigChange, ConfigView
from dougong.engine import preparation
from dougong.engine.preparation import prepare
from dougong.engine.startup import start_engine
from dougong.errors import ConfigError, EngineDeadError, KernelFault, PluginError
from dougong.testing.null_platform import NullPlatform
from tests.support.command_line import run_command
from tests.support.null_engine import NullModels, install_null_platform

FOUR: dict[str, Any] = {"platform": "null", "num_kv_blocks": 100}


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NullModels:
    """The null platform with four devices."""
    install_null_platform(tmp_path / "four", monkeypatch, "plugin_of_four")
    return NullModels(tmp_path / "models")


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models that somebody looked for."""
    names: list[str] = []
    monkeypatch.setattr(
        preparation, "resolve_reference", lambda model, **kwargs: names.append(model)
    )
    return names


def test_more_devices_than_one_are_refused(four: NullModels, searched: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"--devices 0,1 .*0 \(Null\), 1 \(Null\).*--devices 0"):
        prepare(EngineArgs(model="org/big", devices="0,1", platform="null"))
    assert searched == []


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


def test_a_platform_that_is_not_there_is_refused_before_anything_is_fetched(
    null_models: NullModels, searched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("generate", "A", "--model", "org/big", "--platform", "typo") == 2
    assert "'typo' is not installed" in capsys.readouterr().err
    assert searched == []


def test_an_unknown_attention_backend_is_refused_before_anything_is_fetched(
    null_models: NullModels, searched: list[str]
) -> None:
    args = EngineArgs(model="org/big", platform="null", attention_backend="acme/flash")
    with pytest.raises(ConfigError, match=r"acme/flash.*It has: reference/torch"):
        prepare(args)
    assert searched == []


def test_a_platform_that_proposes_a_backend_it_lacks_is_at_fault(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def propose(self: NullPlatform, config: ConfigView) -> list[ConfigChange]:
        return [ConfigChange("attention_backend", "acme/flash", "it is fast")]

    monkeypatch.setattr(NullPlatform, "check_and_update_config", propose)
    with pytest.raises(PluginError, match="null proposes attention_backend=acme/flash"):
        start_engine(EngineArgs(model=null_models.write(), platform="null"))


def test_the_model_is_looked_for_once_in_a_start(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[str]()

    def resolve(model: str, **kwargs: Any) -> object:
        found.append(model)
        return resolve_reference(model, **kwargs)

    monkeypatch.setattr(preparation, "resolve_reference", resolve)
    with LLM(null_models.write(), **FOUR):
        assert len(found) == 1
