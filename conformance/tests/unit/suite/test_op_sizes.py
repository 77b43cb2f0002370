"""Sizes that conditions of kernels lead to are sizes that the ops and their oracles can have."""

from __future__ import annotations

from typing import Any

import pytest

from dougong_conformance.kit.generate import Draw
from dougong_conformance.suite.op_kinds import KINDS
from dougong_conformance.suite.ops_behaviour import _sizes_for


class AcceptsUpTo:
    """A subject with one kernel that takes every size up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.facts = type("Facts", (), {"dtypes": ("float32",)})()

    def call(self, procedure: str, **arguments: Any) -> dict[str, list[Any]]:
        return {
            name: [one for one in values if not isinstance(one, int) or one <= self._limit][:2]
            for name, values in arguments["candidates"].items()
            if name in KINDS[arguments["key"]].sizes
        }


@pytest.mark.parametrize("key", ["rotary_embedding", "qkv_norm_rope"])
def test_heads_that_are_rotated_have_pairs(key: str) -> None:
    subject: Any = AcceptsUpTo(894)
    for sizes in _sizes_for(subject, key, "acme/rope"):
        assert sizes["head_dim"] % 2 == sizes["rotary_dim"] % 2 == 0


@pytest.mark.parametrize(("num_experts", "top_k"), [(1, 1), (2, 1), (2, 2), (5, 2), (8, 8)])
def test_every_token_gets_its_number_of_experts(num_experts: int, top_k: int) -> None:
    kind = KINDS["moe_experts"]
    sizes = {**kind.sizes, "num_experts": num_experts, "top_k": top_k}
    draw = Draw("moe sizes")
    weights = kind.weights(sizes, draw)
    arguments = kind.arguments(sizes, draw, 3)
    assert arguments[1].shape == arguments[2].shape == (3, top_k)
    assert kind.expected(sizes, weights, arguments)
