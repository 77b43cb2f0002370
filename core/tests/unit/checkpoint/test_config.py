from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dougong.checkpoint import read_config, resolve_reference
from dougong.errors import CheckpointError
from tests.support.checkpoints import LLAMA_CONFIG, write_shards


def hf_config(folder: Path, **changes: object) -> dict[str, Any]:
    config = {key: value for key, value in (LLAMA_CONFIG | changes).items() if value is not None}
    write_shards(folder, [{"model.norm.weight": torch.ones(4, dtype=torch.float16)}], config=config)
    return read_config(resolve_reference(str(folder)))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float32"}, "float32"),
        ({"torch_dtype": "torch.float16"}, "float16"),
        ({}, "float16"),
    ],
    ids=["before 5", "since 5", "with prefix", "from the weights"],
)
def test_the_dtype_has_one_name(tmp_path: Path, written: dict[str, object], expected: str) -> None:
    config = hf_config(tmp_path, **written)
    assert config["torch_dtype"] == expected
    assert "dtype" not in config


LINEAR = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    "written",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_theta": 5e5, "rope_scaling": LINEAR},
        {"rope_theta": None, "rope_parameters": {**LINEAR, "rope_theta": 5e5}},
    ],
    ids=["before 4.45", "before 5", "since 5"],
)
def test_rotary_settings_agree_whoever_wrote_them(
    tmp_path: Path, written: dict[str, object]
) -> None:
    config = hf_config(tmp_path, **written)
    assert config["rope_theta"] == 5e5
    assert config["rope_scaling"] == LINEAR
    assert config["rope_parameters"] == {**LINEAR, "rope_theta": 5e5}


def test_plain_rotation_has_no_scaling(tmp_path: Path) -> None:
    config = hf_config(tmp_path)
    assert config["rope_scaling"] is None
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 10000.0}


def test_rotary_settings_per_layer_type_stay_as_they_are(tmp_path: Path) -> None:
    per_layer = {"full_attention": {**LINEAR, "rope_theta": 1e6}, "sliding_attention": {}}
    assert hf_config(tmp_path, rope_parameters=per_layer)["rope_parameters"] == per_layer


@pytest.mark.parametrize("content", ["{", "[]", "{}"], ids=["no json", "no object", "no model"])
def test_an_unusable_config_is_refused(tmp_path: Path, content: str) -> None:
    write_shards(tmp_path, [{"w": torch.ones(2)}])
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_config(resolve_reference(str(tmp_path)))


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, [{"w": torch.ones(2)}])
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        read_config(resolve_reference(str(tmp_path)))
