"""A projection with what adapters add to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from dougong.contracts import LoRAPair, LoRAWrapper
from dougong.ops import Linear


@dataclass(slots=True)
class LoRAUse:
    """What all projections of a rank share.

    Attributes:
        wrapper: Computes.
        is_active: Some token of this step uses an adapter; a number of the host.
    """

    wrapper: LoRAWrapper
    is_active: bool = False


@dataclass(frozen=True, slots=True)
class LoRAPart:
    """Memory of all slots for one projection.

    Attributes:
        rows: Its columns of the output.
        a: See `LoRAWrapper.add_lora_linear`.
        b: The same.
    """

    rows: slice
    a: torch.Tensor
    b: torch.Tensor

    def fill(self, slot: int, pair: LoRAPair | None) -> None:
        """Write one slot whole; ``None``: zeros."""
        rank = 0 if pair is None else pair.a.shape[0]
        if pair is not None:
            self.a[slot, :rank].copy_(pair.a)
            self.b[slot, :, :rank].copy_(pair.b)
        self.a[slot, rank:].zero_()
        self.b[slot, :, rank:].zero_()


class LoRALinear(nn.Module):
    """Stands where the projection stood, and reads as it does.

    Args:
        inner: The projection as it was bound.
        parts: Per projection in it.
        use: Shared.
    """

    def __init__(self, inner: Linear, parts: tuple[LoRAPart, ...], use: LoRAUse) -> None:
        super().__init__()
        self.inner = inner
        self._parts = parts
        self._use = use

    @property
    def weight(self) -> torch.Tensor:
        """The projection's own."""
        return self.inner.weight

    @property
    def bias(self) -> torch.Tensor | None:
        """The projection's own."""
        return self.inner.bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As the projection, and what each token's adapter adds."""
        out: torch.Tensor = self.inner(x)
        if self._use.is_active:
            for part in self._parts:
                columns = out[:, part.rows]
                self._use.wrapper.add_lora_linear(columns, x, part.a, part.b, 1.0)
        return out
