from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dougong import LLM
from dougong.checkpoint import CheckpointFiles, resolve_reference
from dougong.config import EngineArgs
from dougong.contracts import ConfigChange, ConfigView
from dougong.engine import preparation
from dougong.engine.planning import explain
from dougong.engine.preparation import prepare
from dougong.engine.startup import start_engine
from dougong.errors import CheckpointError, ConfigError, PluginError
from dougong.testing.null_platform import NullPlatform
from tests.support.command_line import run_command
from tests.support.null_engine import NULL_OPTIONS, NullModels


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models that somebody looked for."""
    names: list[str] = []
    monkeypatch.setattr(
        preparation, "resolve_reference", lambda model, **kwargs: names.append(model)
    )
    return names


def without_weights(folder: str) -> str:
    for file in Path(folder).glob("*.safetensors"):
        file.unlink()
    return folder


def test_a_platform_that_is_not_there_is_refused_before_anything_is_fetched(
    null_models: NullModels, searched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("generate", "A", "--model", "org/big", "--platform", "typo") == 2
    assert "'typo' is not installed" in capsys.readouterr().err
    assert searched == []


def test_a_platform_without_the_certificate_asked_for_is_refused_before_anything_is_fetched(
    null_models: NullModels, searched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("generate", "A", "--model", "org/big", "--platform", "null")
    assert run_command(*asked, "--require-conformance", "core") == 2
    told = capsys.readouterr().err
    assert "--require-conformance core refuses platform null: null " in told
    assert "no certificate" in told
    assert "dougong-conform certify --plugin null" in told
    assert searched == []


def test_a_plan_is_refused_as_its_start_would_be(null_models: NullModels) -> None:
    wishes = EngineArgs(model="org/big", platform="null", require_conformance="core")
    with pytest.raises(ConfigError, match="refuses platform null"):
        explain(wishes)
    with pytest.raises(ConfigError, match="a capability file describes a device without one"):
        explain(wishes, Path("card.json"))


def test_an_option_that_cannot_be_obeyed_is_refused_before_weights_are_looked_for(
    null_models: NullModels,
) -> None:
    folder = without_weights(null_models.write())
    with pytest.raises(ConfigError) as caught:
        prepare(EngineArgs(model=folder, platform="null", attention_backend="acme/flash"))
    assert not isinstance(caught.value, CheckpointError)
    assert "acme/flash" in str(caught.value)
    assert "reference/torch" in str(caught.value)
    with pytest.raises(CheckpointError, match="safetensors"):
        prepare(EngineArgs(model=folder, platform="null"))


def test_weights_that_came_after_the_plan_are_planned_with(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(null_models.write())
    (weights,) = folder.glob("*.safetensors")
    content = weights.read_bytes()
    weights.unlink()

    def fetch(model: str, *, needs_weights: bool = True, **kwargs: Any) -> CheckpointFiles:
        if needs_weights:
            weights.write_bytes(content)
        return resolve_reference(model, needs_weights=needs_weights, **kwargs)

    monkeypatch.setattr(preparation, "resolve_reference", fetch)
    prepared = prepare(EngineArgs(model=str(folder), platform="null"))
    assert prepared.planned.knows_weights
    assert [one.stored_bytes for one in prepared.planned.plan.weights] != [None]


def test_a_platform_that_proposes_a_backend_it_lacks_is_at_fault(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def propose(self: NullPlatform, config: ConfigView) -> list[ConfigChange]:
        return [ConfigChange("attention_backend", "acme/flash", "it is fast")]

    monkeypatch.setattr(NullPlatform, "check_and_update_config", propose)
    with pytest.raises(PluginError, match=r"(?s)null proposes what cannot work.*acme/flash"):
        start_engine(EngineArgs(model=null_models.write(), platform="null"))


def test_the_model_is_looked_for_once_in_a_start(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[str]()

    def resolve(model: str, **kwargs: Any) -> object:
        found.append(model)
        return resolve_reference(model, **kwargs)

    monkeypatch.setattr(preparation, "resolve_reference", resolve)
    with LLM(null_models.write(), **NULL_OPTIONS):
        assert len(found) == 1
