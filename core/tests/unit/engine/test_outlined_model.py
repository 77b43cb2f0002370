"""What cannot be built is described all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dougong.checkpoint import resolve_reference
from dougong.engine.outlined_model import OutlinedModel, outlined_model
from dougong.errors import CheckpointError
from dougong.models.registry import ModelRegistry
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint


def outlined(folder: Path, **changes: Any) -> OutlinedModel:
    config = tiny_config(**changes)
    if not folder.exists():
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
    return outlined_model(resolve_reference(str(folder), needs_weights=False), ModelRegistry(()))


def test_a_model_is_as_its_class_builds_it(tmp_path: Path) -> None:
    told = outlined(write_tiny_checkpoint(tmp_path / "whole"))
    assert told.refusal is None
    assert told.knows_weights
    assert told.needs.ops
    assert told.needs.attention == told.described
    assert told.needs.num_parameters == told.model.num_parameters
    assert told.notes(10**6) == ()


def test_without_weights_the_built_model_counts(tmp_path: Path) -> None:
    whole, bare = outlined(write_tiny_checkpoint(tmp_path / "whole")), outlined(tmp_path / "bare")
    assert not bare.knows_weights
    assert bare.model.num_parameters == whole.model.num_parameters


def test_a_model_of_no_known_class_is_described_with_why_it_cannot_run(tmp_path: Path) -> None:
    told = outlined(tmp_path / "m", architectures=["AcmeForCausalLM"], sliding_window=8)
    assert isinstance(told.refusal, CheckpointError)
    assert "AcmeForCausalLM" in str(told.refusal)
    assert told.needs.ops == ()
    assert told.needs.attention == told.described
    assert told.notes(10**6) == (), "nobody can say what no class ignores"


def test_a_config_that_lacks_a_number_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="hidden_size"):
        outlined(tmp_path / "m", hidden_size=None)


def test_formats_that_are_read_are_looked_up_for_a_refusal_alone(tmp_path: Path) -> None:
    assert outlined(tmp_path / "plain").readable_formats == ()
    told = outlined(tmp_path / "awq", quantization_config={"quant_method": "awq", "bits": 4})
    assert {"q4_0", "q6_k"} <= set(told.readable_formats)
    assert "f32" not in told.readable_formats
