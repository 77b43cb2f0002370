"""The ops of a model, with places and properties, before it has any memory."""

from __future__ import annotations

import torch
from torch import nn

from dougong.ops import Embedding, GateUpAct, LMHead, RMSNorm, outline_ops


def test_every_op_is_listed_with_its_place_and_its_properties_without_memory() -> None:
    with torch.device("meta"):
        embedding = Embedding(50_000, 4096, torch.bfloat16)
        head = LMHead(50_000, 4096, torch.bfloat16, embedding)
        model = nn.ModuleDict({"embed": embedding, "head": head})
    tied = {
        "vocab_size": 50_000,
        "hidden_size": 4096,
        "is_tied": True,
        "weight_format": "bfloat16",
    }
    assert [(site.key, site.path, site.properties) for site in outline_ops(model)] == [
        ("embedding", "embed", tied),
        ("lm_head", "head", tied),
    ]


def test_the_parts_of_a_fused_slot_stand_under_its_path() -> None:
    model = nn.ModuleDict({"mlp": GateUpAct(8, 4, "gelu", False, torch.float32)})
    assert [(site.path, site.key) for site in outline_ops(model)] == [
        ("mlp", "gate_up_act"),
        ("mlp.act", "gelu_and_mul"),
    ]


def test_an_op_in_two_places_counts_once_and_a_prefix_stands_before_each() -> None:
    norm = RMSNorm(4, 1e-6, torch.float32)
    model = nn.ModuleDict({"first": norm, "second": norm})
    assert [site.path for site in outline_ops(model, "sampler.")] == ["sampler.first"]
    assert [site.path for site in outline_ops(norm)] == [""]
