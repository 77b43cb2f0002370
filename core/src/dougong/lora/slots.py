"""Adapters on a device: one place per slot and projection, filled and cleared between steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from dougong.contracts import LoRAPair, LoRAWeights, LoRAWrapper
from dougong.errors import RequestError
from dougong.lora.linear import LoRALinear, LoRAPart, LoRAUse
from dougong.lora.places import LoRAPlace
from dougong.ops import Linear

_MOST_TOLD = 5


class LoRASlots:
    """All adapters of one rank.

    While no row of a step uses an adapter the projections run as they are.

    Args:
        model: Loaded and bound; its projections are wrapped, and stay so.
        places: Of `adapter_places`.
        wrapper: The platform's.
        max_rank: Largest rank.
    """

    def __init__(
        self, model: nn.Module, places: Sequence[LoRAPlace], wrapper: LoRAWrapper, max_rank: int
    ) -> None:
        self._max_loras = wrapper.max_loras
        self._max_rank = max_rank
        self._use = LoRAUse(wrapper)
        self._places = {place.name: place for place in places}
        self._parts = {
            place.name: self._make_part(place, wrapper.device, place.linear.dtype)
            for place in places
        }
        for linear, own in _by_linear(places):
            parts = tuple(self._parts[place.name] for place in own)
            _replace(model, own[0].path, LoRALinear(linear, parts, self._use))

    def try_wrapper(self) -> None:
        """Add nothing to one token of the first projection: whoever cannot be used fails here."""
        part, wrapper = next(iter(self._parts.values())), self._use.wrapper
        x = part.a.new_zeros(1, part.a.shape[2])
        out = part.b.new_zeros(1, part.b.shape[1])
        wrapper.update_metadata(torch.zeros(1, dtype=torch.int64, device=wrapper.device))
        wrapper.add_lora_linear(out, x, part.a, part.b, 1.0)

    @property
    def num_bytes(self) -> int:
        """Memory of all slots."""
        return sum(part.a.nbytes + part.b.nbytes for part in self._parts.values())

    def begin_step(self, lora_indices: torch.Tensor) -> None:
        """Tell whoever computes which tokens use what; only where some do, or a step is replayed.

        Args:
            lora_indices: int64 ``[num_tokens]``, padding included; ``-1``: none.
        """
        self._use.is_active = True
        self._use.wrapper.update_metadata(lora_indices)

    def end_step(self) -> None:
        """Nothing is added until the next `begin_step`."""
        self._use.is_active = False

    @contextmanager
    def captured(self, lora_indices: torch.Tensor) -> Iterator[None]:
        """Inside, steps are captured with adapters, whichever tokens will use them."""
        self.begin_step(lora_indices)
        try:
            yield
        finally:
            self.end_step()

    def set(self, slot: int, weights: LoRAWeights | None) -> None:
        """See `dougong.contracts.LoRAWorker.set_lora`."""
        if not 0 <= slot < self._max_loras:
            raise RequestError(
                f"slot {slot} was named, and there are {self._max_loras}, from 0 on.", field="slot"
            )
        pairs: Mapping[str, LoRAPair] = {}
        if weights is not None:
            self._check(weights)
            pairs = weights.pairs
        for name, part in self._parts.items():
            part.fill(slot, pairs.get(name))

    def _check(self, weights: LoRAWeights) -> None:
        if weights.rank > self._max_rank:
            raise RequestError(
                f"The adapter has rank {weights.rank}, and this engine takes ranks up to "
                f"{self._max_rank}. Start it with --max-lora-rank {weights.rank}.",
                field="lora_path",
            )
        problems = [
            problem for name, pair in weights.pairs.items() if (problem := self._unfit(name, pair))
        ]
        if problems:
            told = " ".join(problems[:_MOST_TOLD])
            more = len(problems) - _MOST_TOLD
            rest = f" And {more} more." if more > 0 else ""
            raise RequestError(
                f"The adapter does not fit this model. {told}{rest} Load one that was trained on "
                "it, on projections alone.",
                field="lora_path",
            )

    def _unfit(self, name: str, pair: LoRAPair) -> str:
        place = self._places.get(name)
        if place is None:
            kinds = dict.fromkeys(one.rpartition(".")[2] for one in self._places)
            return f"{name!r} takes no adapter here; what does: {', '.join(kinds)}."
        a, b = tuple(pair.a.shape), tuple(pair.b.shape)
        rank = a[0]
        fitting = (rank, place.in_features), (place.out_features, rank)
        if (a, b) != fitting:
            return (
                f"{name!r} has shapes {a} and {b}; the model needs {fitting[0]} and {fitting[1]}."
            )
        return ""

    def _make_part(self, place: LoRAPlace, device: torch.device, dtype: torch.dtype) -> LoRAPart:
        rank = self._max_rank
        # Filled, and not only promised, so that it counts wherever memory is measured.
        a = torch.empty(self._max_loras, rank, place.in_features, dtype=dtype, device=device)
        b = torch.empty(self._max_loras, rank, place.out_features, dtype=dtype, device=device)
        return LoRAPart(place.rows, a.zero_(), b.zero_().transpose(1, 2))


@dataclass(slots=True)
class _Group:
    linear: Linear
    places: list[LoRAPlace]


def _by_linear(places: Iterable[LoRAPlace]) -> Iterator[tuple[Linear, list[LoRAPlace]]]:
    groups: dict[str, _Group] = {}
    for place in places:
        groups.setdefault(place.path, _Group(place.linear, [])).places.append(place)
    return ((group.linear, group.places) for group in groups.values())


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
