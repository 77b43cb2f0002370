"""Shapes of results, for fake tensors: of ops whose reference needs values.

Where the vendor's wheel has a meta kernel, that one is used when the wheel is there; `HAS_OWN_FAKE`
are the ops for which it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from tests.references import cache, rotary
from tests.references.refusals import require


def _writes(op: str, host: int | None = None) -> Callable[..., None]:
    """Of an op that only writes: its tensors lie on one device, but the one at ``host``."""

    def fake(*args: Any, **kwargs: Any) -> None:
        given = [*args[:host], *(args[host + 1 :] if host is not None else ()), *kwargs.values()]
        devices = {one.device for one in given if isinstance(one, torch.Tensor)}
        require(len(devices) == 1, op, f"tensors lie on {sorted(map(str, devices))}")

    return fake


def _moe_init_routing(
    x: torch.Tensor, expert_idx: torch.Tensor, *, expert_num: int = -1, **keywords: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = expert_idx.numel()
    return (
        x.new_empty(rows, x.shape[1]),
        expert_idx.new_empty(rows),
        expert_idx.new_empty(expert_num, dtype=torch.int64),
        x.new_empty(rows, dtype=torch.float32),
    )


FAKES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "npu::npu_moe_init_routing_v2": _moe_init_routing,
        "npu::npu_format_cast": cache.npu_format_cast,
        "atb::_npu_paged_attention": _writes("_npu_paged_attention"),
        "atb::_npu_paged_attention_splitfuse_v2": _writes("splitfuse_v2", host=6),
        "atb::_npu_reshape_and_cache": _writes("_npu_reshape_and_cache"),
        "atb::_npu_rotary_embedding": rotary.npu_rotary_embedding,
    }
)
"""Op → function on fake tensors."""

HAS_OWN_FAKE = frozenset(FAKES) - {"npu::npu_moe_init_routing_v2"}
"""Ops of which the vendor's wheel has no meta kernel."""
