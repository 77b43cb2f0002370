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
    metadata = {
        "gemma3.attention.key_length": 32,
        "gemma3.attention.sliding_window": 512,
        "gemma3.rope.freq_base_swa": 5000.0,
        "gemma3.final_logit_softcapping": 30.0,
    }
    config = gguf_config(tmp_path / "m.gguf", architecture="gemma3", metadata=metadata)
    assert config["model_type"] == "gemma3_text"
    assert config["architectures"] == ["Gemma3ForCausalLM"]
    assert (config["head_dim"], config["sliding_window"]) == (32, 512)
    assert config["rope_local_base_freq"] == 5000.0
    assert config["final_logit_softcapping"] == 30.0


@pytest.mark.parametrize(("num_layers", "scalar"), [(18, 32), (62, 16)])
def test_gemma3_scales_queries_by_the_head_but_for_the_largest(
    tmp_path: Path, num_layers: int, scalar: int
) -> None:
    shape = LLAMA_CONFIG | {"num_hidden_layers": num_layers}
    metadata = {"gemma3.attention.key_length": 32}
    config = gguf_config(
        tmp_path / "m.gguf", architecture="gemma3", config=shape, metadata=metadata
    )
    assert config["query_pre_attn_scalar"] == scalar


def test_granites_multipliers_have_their_hugging_face_names(tmp_path: Path) -> None:
    scales = {"attention.scale": 0.25, "embedding_scale": 12.0, "residual_scale": 0.22}
    metadata = {f"granite.{key}": value for key, value in (scales | {"logit_scale": 8.0}).items()}
    config = gguf_config(tmp_path / "m.gguf", architecture="granite", metadata=metadata)
    assert config["architectures"] == ["GraniteForCausalLM"]
    names = ("attention", "embedding", "residual")
    assert [config[f"{name}_multiplier"] for name in names] == [0.25, 12.0, 0.22]
    assert config["logits_scaling"] == 8.0


def test_phi3s_tables_of_factors_are_longrope_and_heads_may_turn_in_part(tmp_path: Path) -> None:
    long, short = (np.arange(6, dtype=np.float32) + start for start in (2.5, 1))
    tensors = {
        **EMBEDDING,
        "rope_factors_long.weight": (long, F32),
        "rope_factors_short.weight": (short, F32),
    }
    metadata = {
        "phi3.rope.dimension_count": 12,
        "phi3.rope.scaling.original_context_length": 64,
        "phi3.rope.scaling.attn_factor": 1.25,
    }
    config = gguf_config(tmp_path / "m.gguf", tensors, architecture="phi3", metadata=metadata)
    assert config["rope_scaling"] == {
        "rope_type": "longrope",
        "long_factor": long.tolist(),
        "short_factor": short.tolist(),
        "original_max_position_embeddings": 64,
        "attention_factor": 1.25,
    }
    assert config["partial_rotary_factor"] == 0.75


def test_half_of_longropes_factors_are_refused(tmp_path: Path) -> None:
    tensors = {**EMBEDDING, "rope_factors_long.weight": (np.ones(6, np.float32), F32)}
    with pytest.raises(CheckpointError, match=r"not rope_factors_short\.weight"):
        gguf_config(tmp_path / "m.gguf", tensors, architecture="phi3")


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
