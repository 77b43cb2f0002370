"""Which modules hold the same memory, so that nobody destroys what another one reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from dougong.contracts.rank_plan import NATIVE
from dougong.ops.custom_op import CustomOp

_Memory = tuple[torch.device, int]


def note_sharers(module: nn.Module, ops: Mapping[str, CustomOp]) -> None:
    """Write `CustomOp.sharers` of every op under ``module``; what each is assigned is known.

    A fused slot holds what its parts hold. Of a slot and a part each counts for the other where it
    has an implementation of its own, which may read that memory later.

    Args:
        module: Loaded.
        ops: Path → op, of all under ``module``.
    """
    holders: dict[_Memory, dict[int, nn.Module]] = {}
    for owner in module.modules():
        for memory in _held(owner, recurse=False):
            holders.setdefault(memory, {})[id(owner)] = owner
    readers: dict[int, dict[int, nn.Module]] = {}
    for op in ops.values():
        if _has_implementation(op):
            for part in op.modules():
                readers.setdefault(id(part), {})[id(op)] = op
    for op in ops.values():
        own = {id(part) for part in op.modules() if not _has_implementation(part)} | {id(op)}
        found = dict(readers.get(id(op), {}))
        for memory in _held(op, recurse=True):
            found |= holders[memory]
        op.sharers = tuple(other for key, other in found.items() if key not in own)


def _has_implementation(module: nn.Module) -> bool:
    return isinstance(module, CustomOp) and module.assigned != (NATIVE,)


def _held(module: nn.Module, *, recurse: bool) -> Iterator[_Memory]:
    for tensors in (module.parameters(recurse), module.buffers(recurse)):
        for tensor in tensors:
            if tensor.numel() and not tensor.is_meta:
                yield tensor.device, tensor.untyped_storage().data_ptr()
