from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Phi3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

from dougong.models.rotary import cos_sin_table
from dougong.models.rotary_settings import read_rotary_settings
from tests.support.tiny_models import ROPE_KINDS, tiny_config

HEAD_DIM = 16
NUM_POSITIONS = 300


def table(config: Mapping[str, Any], num_positions: int = NUM_POSITIONS) -> torch.Tensor:
    return cos_sin_table(read_rotary_settings(config, HEAD_DIM), num_positions)


def their_table(rotary: Any, positions: list[int]) -> torch.Tensor:
    cos, sin = rotary(torch.zeros(1), torch.tensor([positions]))
    half = cos.shape[-1] // 2
    return torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1)


def their_llama(config: Mapping[str, Any]) -> Any:
    names = ("hidden_size", "num_attention_heads", "max_position_embeddings")
    rope = {k: dict(v) for k, v in config.items() if k.startswith("rope_") and v is not None}
    return LlamaRotaryEmbedding(LlamaConfig(**{name: config[name] for name in names}, **rope))


@pytest.mark.parametrize("kind", ROPE_KINDS)
def test_the_table_is_that_of_transformers(kind: str) -> None:
    config = tiny_config(rope_parameters=ROPE_KINDS[kind], max_position_embeddings=NUM_POSITIONS)
    theirs = their_table(their_llama(config), list(range(NUM_POSITIONS)))
    torch.testing.assert_close(table(config), theirs, rtol=0, atol=2e-6)


def test_the_kinds_differ() -> None:
    tables = [table(tiny_config(rope_parameters=rope)) for rope in ROPE_KINDS.values()]
    for one, other in itertools.combinations(tables, 2):
        assert (one - other).abs().max() > 0.1


def test_dynamic_rows_beyond_the_original_length_have_the_base_of_their_own_length() -> None:
    config = tiny_config(rope_parameters=ROPE_KINDS["dynamic"], max_position_embeddings=64)
    rotary = their_llama(config)
    theirs = torch.cat([their_table(rotary, [position]) for position in range(NUM_POSITIONS)])
    torch.testing.assert_close(table(config), theirs, rtol=0, atol=5e-5)


def test_a_row_does_not_depend_on_how_many_follow() -> None:
    for rope in ROPE_KINDS.values():
        config = tiny_config(rope_parameters=rope, max_position_embeddings=64)
        assert torch.equal(table(config, 80), table(config)[:80])


def test_an_engine_within_longropes_original_length_uses_the_short_set() -> None:
    config = tiny_config(rope_parameters=ROPE_KINDS["longrope"])
    theirs = their_table(their_llama(config), list(range(64)))
    torch.testing.assert_close(table(config, 64), theirs, rtol=0, atol=2e-6)
    assert (table(config, 65)[:64] - theirs).abs().max() > 0.1


@pytest.mark.parametrize("share", [0.5, 0.75])
def test_a_part_of_each_head_may_be_rotated(share: float) -> None:
    config = tiny_config(partial_rotary_factor=share)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}
    theirs = Phi3RotaryEmbedding(
        Phi3Config(hidden_size=64, num_attention_heads=4, pad_token_id=0, rope_parameters=rope)
    )
    settings = read_rotary_settings(config, HEAD_DIM)
    assert settings.rotary_dim == HEAD_DIM * share
    expected = their_table(theirs, list(range(NUM_POSITIONS)))
    torch.testing.assert_close(table(config), expected, rtol=0, atol=2e-6)


def test_a_yarn_config_without_factor_stretches_from_the_original_length() -> None:
    rope = {"rope_type": "yarn", "original_max_position_embeddings": 64}
    implied = tiny_config(rope_parameters=rope)
    stated = tiny_config(rope_parameters={**rope, "factor": 4.0})
    assert torch.equal(table(implied), table(stated))


def test_the_table_is_made_on_the_host_whatever_the_default_device() -> None:
    with torch.device("meta"):
        assert table(tiny_config()).device.type == "cpu"
