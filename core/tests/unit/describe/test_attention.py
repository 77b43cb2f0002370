from __future__ import annotations

from typing import Any

import pytest

from dougong.describe import AttentionNeed
from dougong.describe.attention import describe_attention, head_sizes
from tests.unit.describe import families

# Of each family: layers without a window, layers with one, the window, the head size.
LAYERS: dict[str, tuple[dict[str, Any], int, int, int | None, int]] = {
    "llama": (families.LLAMA_3_8B, 32, 0, None, 128),
    "mistral": (families.MISTRAL_7B_V1, 0, 32, 4096, 128),
    "mixtral": (families.MIXTRAL, 32, 0, None, 128),
    "phi3": (families.PHI_3_MINI, 0, 32, 2047, 96),
    "gemma2": (families.GEMMA_2_2B, 13, 13, 4096, 256),
    "gemma3": (families.GEMMA_3_1B, 4, 22, 512, 256),
    "qwen2": (families.QWEN_2_7B, 28, 0, None, 128),
    "qwen3": (families.QWEN_3_4B, 36, 0, None, 128),
    "qwen2 moe": (families.QWEN_2_MOE, 28, 0, None, 128),
    "deepseek v2": (families.DEEPSEEK_V2, 60, 0, None, 192),
    "deepseek v3": (families.DEEPSEEK_V3, 61, 0, None, 192),
    "gpt-oss": (families.GPT_OSS_20B, 12, 12, 128, 64),
}


def describe(config: dict[str, Any]) -> tuple[AttentionNeed, ...]:
    return describe_attention(config, config["num_hidden_layers"])


@pytest.mark.parametrize("family", LAYERS)
def test_each_family_has_its_windows_and_its_heads(family: str) -> None:
    config, num_full, num_sliding, window, head_dim = LAYERS[family]
    counts = {need.sliding_window: len(need.layer_indices) for need in describe(config)}
    expected = [(None, num_full), (window, num_sliding)]
    assert counts == {size: count for size, count in expected if count}
    assert {need.head_dim for need in describe(config)} == {head_dim}
    named = sorted(index for need in describe(config) for index in need.layer_indices)
    assert named == list(range(config["num_hidden_layers"]))


def test_gemma_2_begins_with_a_window_and_caps_its_scores() -> None:
    full, sliding = describe(families.GEMMA_2_2B)
    assert sliding.layer_indices[:3] == (0, 2, 4)
    assert full.soft_cap == sliding.soft_cap == 50.0


def test_gemma_3_sees_everything_in_every_sixth_layer_and_has_no_cap() -> None:
    full, _ = describe(families.GEMMA_3_1B)
    assert full.layer_indices == (5, 11, 17, 23)
    assert full.soft_cap is None


def test_latent_attention_has_sizes_of_its_own() -> None:
    (need,) = describe(families.DEEPSEEK_V3)
    assert need.is_mla
    assert (need.kv_lora_rank, need.rope_head_dim, need.head_dim_v) == (512, 64, 128)
    assert "qk_nope_head_dim=128" in head_sizes(families.DEEPSEEK_V3).source


def test_sinks_belong_to_one_family() -> None:
    assert all(need.has_sinks for need in describe(families.GPT_OSS_20B))
    assert not any(need.has_sinks for need in describe(families.LLAMA_3_8B))


def test_where_a_head_size_came_from_is_told() -> None:
    assert head_sizes(families.QWEN_3_4B).source == "head_dim of the checkpoint's config"
    source = head_sizes(families.PHI_3_MINI).source
    assert source == "hidden_size=3072 of the checkpoint over its 32 heads"
