"""The ops of a model, with places and properties, before it has any memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dougong.errors import PluginError
from dougong.ops import Embedding, GateUpAct, LMHead, RMSNorm
from dougong.ops.outline import checked_ops, outline_ops


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
        ("mlp.linear", "linear"),
        ("mlp.act", "gelu_and_mul"),
    ]


def test_an_op_in_two_places_counts_once_and_a_prefix_stands_before_each() -> None:
    norm = RMSNorm(4, 1e-6, torch.float32)
    model = nn.ModuleDict({"first": norm, "second": norm})
    assert [site.path for site in outline_ops(model, "sampler.")] == ["sampler.first"]
    assert [site.path for site in outline_ops(norm)] == [""]


class OffsetNorm(RMSNorm):
    """Multiplies with one more than its weight, as some families do."""

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward_native(x) + x


class OwnNorm(OffsetNorm):
    key = "acme/offset_norm"


class OwnMeaning(RMSNorm):
    key = "acme/own_norm"

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_an_op_of_another_meaning_under_an_inherited_key_is_refused() -> None:
    model = nn.ModuleDict({"norm": OffsetNorm(4, 1e-6, torch.float32)})
    told = (
        r"OffsetNorm, at norm .* key 'rms_norm' of RMSNorm.* key = 'acme/offsetnorm'.*register_op"
    )
    for look in (outline_ops, checked_ops):
        with pytest.raises(PluginError, match=told):
            look(model)


def test_a_relative_with_the_same_meaning_or_a_key_of_its_own_is_fine() -> None:
    class Relative(RMSNorm): ...

    classes = (Relative, OwnNorm, OwnMeaning)
    model = nn.ModuleList(cls(4, 1e-6, torch.float32) for cls in classes)
    keys = ["rms_norm", "acme/offset_norm", "acme/own_norm"]
    assert [site.key for site in outline_ops(model)] == keys
