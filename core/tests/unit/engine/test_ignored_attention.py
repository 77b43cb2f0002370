"""What a config says of attention and the built model does not have is told."""

from __future__ import annotations

from typing import Any

import pytest

from dougong.describe import AttentionNeed
from dougong.engine.ignored_attention import ignored_attention


def need(*layers: int, **properties: Any) -> AttentionNeed:
    sizes: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    return AttentionNeed(layer_indices=layers, **(sizes | properties))


def told(*described: AttentionNeed, built: AttentionNeed) -> list[str]:
    notes = ignored_attention(described, [built], "AcmeForCausalLM", 1000)
    return [note.removeprefix("the config has ").partition(", which model class Acme")[0]
            for note in notes]  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"sliding_window": 999}, "a sliding window of 999 tokens"),
        ({"soft_cap": 30.5}, "a cap of 30.5 on attention scores"),
        ({"has_sinks": True}, "attention sinks"),
        ({"kv_lora_rank": 512, "rope_head_dim": 64}, "latent attention (kv_lora_rank=512)"),
    ],
)
def test_each_property_is_told_where_the_model_lacks_it(
    properties: dict[str, Any], words: str
) -> None:
    assert told(need(0, 1, **properties), built=need(0, 1)) == [words]
    assert told(need(0, 1, **properties), built=need(0, 1, **properties)) == []
    assert told(need(0, 1), built=need(0, 1, **properties)) == []


def test_layers_are_named_where_it_is_not_all_of_them() -> None:
    kinds = (need(0, 2), need(1, 3, sliding_window=8))
    assert told(*kinds, built=need(0, 1, 2, 3)) == ["a sliding window of 8 tokens in layers 1,3"]


def test_a_window_that_holds_every_token_makes_no_difference() -> None:
    assert told(need(0, sliding_window=1000), built=need(0)) == []


def test_a_layer_that_was_not_built_lacks_everything() -> None:
    assert told(need(0, 1, soft_cap=2.0), built=need(0, soft_cap=2.0)) == [
        "a cap of 2 on attention scores in layers 1"
    ]
