from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType

from dougong.checkpoint import (
    CheckpointFiles,
    find_weight_summary,
    read_config,
    resolve_reference,
)
from dougong.describe import ModelNeeds, describe_needs
from dougong.errors import CheckpointError
from tests.support.checkpoints import LLAMA_CONFIG, random_blocks, write_gguf, write_shards
from tests.unit.describe import families


def needs_of(files: CheckpointFiles, num_parameters: int | None = None) -> ModelNeeds:
    config = read_config(files)
    return describe_needs(
        files,
        config,
        find_weight_summary(files),
        architecture=config["architectures"][0],
        num_parameters=num_parameters,
    )


def folder_with(tmp_path: Path, config: dict[str, object]) -> CheckpointFiles:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return resolve_reference(str(tmp_path), needs_weights=False)


def test_a_config_alone_is_enough(tmp_path: Path) -> None:
    needs = needs_of(folder_with(tmp_path, families.DEEPSEEK_V3), 671)
    assert (needs.architecture, needs.num_parameters) == ("DeepseekV3ForCausalLM", 671)
    assert needs.attention[0].is_mla
    assert needs.experts is not None
    assert [weight.format for weight in needs.weights] == ["fp8", "bfloat16"]
    assert needs.ops == ()


def test_without_files_somebody_must_count_the_parameters(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="number of parameters"):
        needs_of(folder_with(tmp_path, families.LLAMA_3_8B))


def test_files_count_for_themselves(tmp_path: Path) -> None:
    write_shards(tmp_path, [{"lm_head.weight": torch.ones(3, 4)}])
    needs = needs_of(resolve_reference(str(tmp_path)), 99)
    assert needs.num_parameters == 12
    assert [weight.format for weight in needs.weights] == ["float32"]


def test_an_assumed_dtype_is_told(tmp_path: Path) -> None:
    needs = needs_of(folder_with(tmp_path, families.GPT_OSS_20B), 1)
    assert "names none; no weight file is here" in needs.provenance["dtype"]
    assert "quantization_config: mxfp4" in needs.provenance["weight_format"]


def test_a_gguf_file_names_its_conversion(tmp_path: Path) -> None:
    kind = GGMLQuantizationType.Q4_1
    path = write_gguf(
        tmp_path / "m.gguf",
        {"token_embd.weight": (random_blocks(kind, 128, 64), kind)},
        metadata={"general.file_type": 3, "general.quantized_by": "somebody"},
    )
    needs = needs_of(resolve_reference(str(path)))
    assert [weight.format for weight in needs.weights] == ["q4_1"]
    assert "converted to GGUF as Q4_1 (general.file_type 3)" in needs.provenance["weight_format"]
    assert "quantized by somebody" in needs.provenance["dtype"]


def test_sizes_that_every_model_has_are_checked(tmp_path: Path) -> None:
    config = families.DEEPSEEK_V3 | {"v_head_dim": None, "vocab_size": True}
    with pytest.raises(CheckpointError) as caught:
        needs_of(folder_with(tmp_path, config), 1)
    assert [problem.split()[0] for problem in caught.value.problems] == ["vocab_size", "v_head_dim"]


def test_kv_heads_of_every_layer_must_be_one_number(tmp_path: Path) -> None:
    config = {**LLAMA_CONFIG, "num_key_value_heads": [2, 4]}
    with pytest.raises(CheckpointError, match="no one number"):
        needs_of(folder_with(tmp_path, config), 1)


def test_only_the_language_model_of_several_counts(tmp_path: Path) -> None:
    config = {"architectures": ["Two"], "text_config": families.LLAMA_3_8B, "hidden_size": 1}
    assert needs_of(folder_with(tmp_path, config), 1).hidden_size == 4096
