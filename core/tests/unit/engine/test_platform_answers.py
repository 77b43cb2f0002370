from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong.config import EngineArgs
from dougong.contracts import Claims, DeviceFacts
from dougong.engine.startup import StartedEngine, start_engine
from dougong.errors import PluginError
from dougong.testing.null_platform import NullPlatform
from tests.support.null_engine import NullModels


def start(null_models: NullModels) -> StartedEngine:
    return start_engine(EngineArgs(model=null_models.write(), platform="null"))


def test_facts_that_open_a_context_are_not_read_in_the_planning_process(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(NullPlatform, "facts_open_context", property(lambda self: True))
    monkeypatch.setattr(NullPlatform, "facts", lambda self, device_index: 1 // 0)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    assert start(null_models).report.memory.limit == 2**30


WRONG_FACTS: dict[str, Any] = {"memory_total_bytes": 0, "name": ""}
WRONG_CLAIMS: dict[str, Any] = {"dtypes": (), "kv_dtypes": ["float32"], "kv_block_sizes": ("16",)}


@pytest.mark.parametrize("field", [*WRONG_FACTS, *WRONG_CLAIMS])
def test_an_answer_that_lacks_what_planning_needs_is_the_plugins_fault(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    plain_facts, plain_claims = NullPlatform.facts, NullPlatform.claims

    def facts(self: NullPlatform, device_index: int) -> DeviceFacts:
        found = plain_facts(self, device_index)
        return replace(found, **{field: WRONG_FACTS[field]}) if field in WRONG_FACTS else found

    def claims(self: NullPlatform, arch: str) -> Claims:
        found = plain_claims(self, arch)
        return replace(found, **{field: WRONG_CLAIMS[field]}) if field in WRONG_CLAIMS else found

    monkeypatch.setattr(NullPlatform, "facts", facts)
    monkeypatch.setattr(NullPlatform, "claims", claims)
    with pytest.raises(PluginError, match=field) as caught:
        start(null_models)
    assert "dougong-null 1.0" in str(caught.value)


@pytest.mark.parametrize("query", ["facts", "claims"])
def test_an_answer_of_another_type_is_the_plugins_fault(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(NullPlatform, query, lambda self, about: {"arch": "null1"})
    with pytest.raises(PluginError, match=query):
        start(null_models)
