"""An adapter as a worker takes it, and the ability to take one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class LoRAPair:
    """What an adapter adds to one projection: ``x @ a.T @ b.T``.

    Attributes:
        a: ``[rank, in_features]`` on the host.
        b: ``[out_features, rank]`` on the host, the adapter's scale multiplied into it.
    """

    a: torch.Tensor
    b: torch.Tensor


@dataclass(frozen=True, slots=True)
class LoRAWeights:
    """One adapter, read and on the host, in float32.

    Attributes:
        rank: The largest of its pairs.
        pairs: By name of the projection, as the model's checkpoints spell it
            (``"model.layers.0.self_attn.q_proj"``). Projections without one stay as they are.
    """

    rank: int
    pairs: Mapping[str, LoRAPair]


@runtime_checkable
class LoRAWorker(Protocol):
    """A `Worker` that holds adapters where its plan says so (``RankPlan.lora``)."""

    def set_lora(self, slot: int, weights: LoRAWeights | None) -> None:
        """Put an adapter into a slot that no running request uses; between two steps.

        Args:
            slot: From 0 to ``max_loras - 1``.
            weights: All or nothing: where any part of it does not fit, the slot stays as it was.
                ``None``: the slot holds zeros from now on.

        Raises:
            RequestError: The adapter does not fit this model or the largest rank; every cause is
                named.
        """
        ...
