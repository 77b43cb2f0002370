from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dougong.checkpoint import CheckpointFiles, CheckpointFormat, WeightSummary
from dougong.config import ModelConfig
from dougong.describe import describe_model
from dougong.errors import CheckpointError

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "torch_dtype": "float32",
}
WEIGHTS = WeightSummary(
    formats={},
    num_parameters=1000,
    num_bytes=4000,
    main_format="F32",
    torch_dtype="float32",
    is_tied=True,
    format_of={},
)
FILES = CheckpointFiles("my/model", CheckpointFormat.SAFETENSORS, Path("/models/my"), ())


def describe(**changes: Any) -> ModelConfig:
    config = {k: v for k, v in (CONFIG | changes).items() if v is not None}
    return describe_model(FILES, config, WEIGHTS, ["LlamaForCausalLM"])


def test_the_numbers_of_a_checkpoint_are_read() -> None:
    model = describe()
    assert (model.num_layers, model.num_heads, model.num_kv_heads, model.head_dim) == (2, 4, 2, 16)
    assert (model.vocab_size, model.max_position, model.dtype) == (100, 256, "float32")
    assert model.is_tied
    assert model.path == "/models/my"
    assert model.weight_bytes(2) == 2000
    assert model.kv_bytes_per_token(4) == 2 * 2 * 2 * 16 * 4


def test_a_head_dim_of_its_own_is_read() -> None:
    assert describe(head_dim=32).head_dim == 32


def test_missing_kv_heads_are_as_many_as_heads() -> None:
    assert describe(num_key_value_heads=None).num_kv_heads == 4


def test_every_missing_number_is_in_the_one_error() -> None:
    with pytest.raises(CheckpointError) as caught:
        describe(vocab_size=None, hidden_size=0)
    assert len(caught.value.problems) == 2


def test_heads_that_cannot_be_shared_evenly_are_refused() -> None:
    with pytest.raises(CheckpointError, match="cannot share 3 KV heads"):
        describe(num_key_value_heads=3)


def test_a_checkpoint_without_a_length_is_refused() -> None:
    with pytest.raises(CheckpointError, match="max_position_embeddings"):
        describe(max_position_embeddings=None)


def describe_without_files(**changes: Any) -> ModelConfig:
    config = CONFIG | changes
    return describe_model(FILES, config, None, ["LlamaForCausalLM"], num_parameters=77)


def test_without_weight_files_the_given_number_of_parameters_counts() -> None:
    model = describe_without_files()
    assert (model.num_parameters, model.stored_bytes, dict(model.weight_formats)) == (77, 0, {})
    with pytest.raises(ValueError, match="number of parameters"):
        describe_model(FILES, CONFIG, None, ["LlamaForCausalLM"])


def test_without_weight_files_the_config_or_the_family_says_whether_the_head_is_tied() -> None:
    assert not describe_without_files().is_tied
    assert describe_without_files(tie_word_embeddings=True).is_tied
    assert describe_without_files(model_type="gemma2").is_tied
