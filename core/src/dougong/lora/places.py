"""Where adapters add to a model: its plain projections, by the names of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from dougong.ops import Linear

_WEIGHT = ".weight"


class FilledRows(Protocol):
    """What a model says of one tensor of its checkpoint; see ``models.causal_lm.WeightTarget``."""

    @property
    def parameter(self) -> torch.Tensor:
        """The whole parameter."""
        ...

    @property
    def rows(self) -> slice | None:
        """The part of its first axis; ``None``: all of it."""
        ...


@dataclass(frozen=True, slots=True)
class LoRAPlace:
    """A projection that adapters may add to.

    Attributes:
        name: As checkpoints spell it (``"model.layers.0.self_attn.q_proj"``).
        linear: The op that computes it, perhaps with others in one product.
        path: Of the op in the model.
        rows: Its columns of the op's output.
    """

    name: str
    linear: Linear
    path: str
    rows: slice

    @property
    def in_features(self) -> int:
        """Columns of its weight."""
        return self.linear.in_features

    @property
    def out_features(self) -> int:
        """Rows of its weight."""
        return int(self.rows.stop - self.rows.start)


def adapter_places(model: nn.Module, targets: Mapping[str, FilledRows]) -> tuple[LoRAPlace, ...]:
    """Every projection of a model, in the order of its checkpoint's names.

    The head is none: its logits are computed for some rows of a step alone.

    Args:
        model: Built; its weights may be on the ``meta`` device.
        targets: The model's ``weight_targets()``.
    """
    return tuple(_find(model, targets))


def adapter_elements(places: tuple[LoRAPlace, ...]) -> int:
    """Elements that one adapter of rank 1 has at all of these places."""
    return sum(place.in_features + place.out_features for place in places)


def _find(model: nn.Module, targets: Mapping[str, FilledRows]) -> Iterator[LoRAPlace]:
    linears = {
        id(module.weight): (path, module)
        for path, module in model.named_modules()
        if isinstance(module, Linear)
    }
    for name, target in targets.items():
        found = linears.get(id(target.parameter))
        if found is not None and name.endswith(_WEIGHT):
            path, linear = found
            rows = target.rows or slice(0, linear.out_features)
            yield LoRAPlace(name.removesuffix(_WEIGHT), linear, path, rows)
