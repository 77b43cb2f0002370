from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from dougong.checkpoint import read_config, resolve_reference
from dougong.checkpoint.gguf_config import shortest_float32
from dougong.errors import CheckpointError
from tests.support.checkpoints import (
    LLAMA3,
    LLAMA3_TABLE,
    LLAMA_CONFIG,
    random_rows,
    write_gguf,
)

F32 = GGMLQuantizationType.F32
EMBEDDING = {"token_embd.weight": (random_rows(128, 64), F32)}


def gguf_config(path: Path, tensors: Any = EMBEDDING, **options: Any) -> dict[str, Any]:
    return read_config(resolve_reference(str(write_gguf(path, tensors, **options))))


def test_gguf_metadata_says_the_same_as_the_config_it_came_from(tmp_path: Path) -> None:
    tensors = {**EMBEDDING, "output.weight": (random_rows(128, 64), F32)}
    config = gguf_config(tmp_path / "m.gguf", tensors)
    assert {key: config[key] for key in LLAMA_CONFIG} == LLAMA_CONFIG
    assert config["head_dim"] == 16
    assert config["torch_dtype"] == "float32"
    assert config["rope_scaling"] is None
    assert not config["attention_bias"]


def test_what_gguf_metadata_leaves_out_is_read_off_the_tensors(tmp_path: Path) -> None:
    tensors = {**EMBEDDING, "blk.0.attn_q.bias": (random_rows(1, 64)[0], F32)}
    config = gguf_config(tmp_path / "m.gguf", tensors, architecture="qwen2")
    assert config["tie_word_embeddings"]
    assert config["attention_bias"]
    assert config["vocab_size"] == 128
    assert config["architectures"] == ["Qwen2ForCausalLM"]


def test_the_text_model_of_gemma3_has_its_hugging_face_name(tmp_path: Path) -> None:
    metadata = {"gemma3.attention.key_length": 32, "gemma3.attention.sliding_window": 512}
    config = gguf_config(tmp_path / "m.gguf", architecture="gemma3", metadata=metadata)
    assert config["model_type"] == "gemma3_text"
    assert config["architectures"] == ["Gemma3ForCausalLM"]
    assert (config["head_dim"], config["sliding_window"]) == (32, 512)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {"type": "yarn", "factor": 8.0, "original_context_length": 64},
            {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64},
        ),
        ({"type": "none"}, None),
    ],
    ids=["linear", "yarn", "none"],
)
def test_rope_scaling_in_gguf_metadata_is_understood(
    tmp_path: Path, metadata: dict[str, object], expected: dict[str, object] | None
) -> None:
    keys = {f"llama.rope.scaling.{key}": value for key, value in metadata.items()}
    assert gguf_config(tmp_path / "m.gguf", metadata=keys)["rope_scaling"] == expected


def test_missing_metadata_is_listed(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", EMBEDDING)
    path.write_bytes(path.read_bytes().replace(b"llama.block_count", b"llama.block_kount"))
    with pytest.raises(CheckpointError, match="lacks the metadata block_count"):
        read_config(resolve_reference(str(path)))


def test_sizes_that_differ_per_layer_are_refused(tmp_path: Path) -> None:
    metadata = {"llama.attention.sliding_window": [512, 1024]}
    with pytest.raises(CheckpointError, match="different sliding_window per layer"):
        gguf_config(tmp_path / "m.gguf", metadata=metadata)


@pytest.mark.parametrize("value", [1e-5, 1e-6, 0.1, 10000.0, 500000.0, 1.0, 3.25, 0.0])
def test_float32_numbers_are_spelt_as_people_wrote_them(value: float) -> None:
    assert shortest_float32(float(np.float32(value))) == value


def test_a_config_from_metadata_is_plain_json(tmp_path: Path) -> None:
    config = gguf_config(tmp_path / "m.gguf")
    assert json.loads(json.dumps(config)) == config


def test_a_table_of_rotary_factors_becomes_the_scaling_it_was_made_by(tmp_path: Path) -> None:
    table = np.array(LLAMA3_TABLE, dtype=np.float32)
    shape = LLAMA_CONFIG | {"num_attention_heads": 1, "rope_theta": 500000.0}
    tensors = {**EMBEDDING, "rope_freqs.weight": (table, F32)}
    assert gguf_config(tmp_path / "m.gguf", tensors, config=shape)["rope_scaling"] == LLAMA3
