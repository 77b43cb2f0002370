"""A model's forward in pieces: cut at its attention layers, wherever its code calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from dougong.attention import Attention, AttentionStep
from dougong.contracts import AttentionImpl


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What one layer was called with between two pieces; the pieces write and read these tensors.

    Attributes:
        layer: Whose call it is.
        q: Queries, padding included, as the other two.
        k: Keys.
        v: Values.
        out: Where the next piece reads.
    """

    layer: Attention
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor

    def run(self, step: AttentionStep) -> None:
        """The same for another step, on what these tensors hold now."""
        layer, group = self.layer, self.layer.group_index
        impl, cache = layer.impl, layer.kv_cache
        impl.write_kv(self.k, self.v, cache, step.slot_mappings[group])
        impl.forward(self.q, self.k, self.v, cache, step.metadata[group], self.out)


class PieceRecorder:
    """Ends a piece where an attention layer is called, and begins the next one after it.

    Args:
        capture: Gives the block in which a piece of this number runs.
        stack: Holds the block that is open; it is closed by whoever runs the model.

    Attributes:
        calls: Attention between the pieces so far.
    """

    def __init__(
        self, capture: Callable[[int], AbstractContextManager[None]], stack: ExitStack
    ) -> None:
        self.calls: list[AttentionCall] = []
        self._capture = capture
        self._stack = stack

    def begin(self) -> None:
        """Open the next piece."""
        self._stack.enter_context(self._capture(len(self.calls)))

    def end(self) -> None:
        """Close the piece that is open, if one is."""
        self._stack.close()

    def impl_for(self, layer: Attention) -> AttentionImpl:
        """Stands in a layer's place while pieces are recorded; computes nothing."""
        return _CuttingImpl(layer, self)


class _CuttingImpl(AttentionImpl):
    def __init__(self, layer: Attention, recorder: PieceRecorder) -> None:
        self._layer = layer
        self._recorder = recorder

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        self._recorder.end()

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: Any,
        out: torch.Tensor,
    ) -> None:
        self._recorder.end()
        self._recorder.calls.append(AttentionCall(self._layer, q, k, v, out))
        self._recorder.begin()
