"""What a rank runs: a model as it is, or the straight-line code made of its list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from dougong.attention import AttentionStep
from dougong.execution.flat_model import FlatModel
from dougong.execution.straight_line import StraightLine, make_straight_line


class Executable(Protocol):
    """The two calls of a step; a `CausalLM` is one."""

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        """See `CausalLM.forward`."""
        ...

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `CausalLM.compute_logits`."""
        ...


@dataclass(frozen=True, slots=True)
class FlatLists:
    """A causal model as lists.

    Attributes:
        forward: ``(token_ids, positions, step)`` → hidden states.
        logits: ``(hidden)`` → logits.
    """

    forward: FlatModel
    logits: FlatModel


class FlatExecutable:
    """Runs lists over a loaded model's ops and layers.

    Args:
        lists: Of the model.
        called: By path; `callees` of the model, and what rewrites made.
        is_counted: Count the calls of each node.

    Attributes:
        forward: See `Executable`; code itself, so that a call costs one frame.
        compute_logits: The same.
        lines: Both, with their source and counts.
    """

    __slots__ = ("compute_logits", "forward", "lines")

    def __init__(
        self,
        lists: FlatLists,
        called: Mapping[str, Callable[..., Any]],
        *,
        is_counted: bool = False,
    ) -> None:
        forward = make_straight_line(lists.forward, called, is_counted=is_counted)
        logits = make_straight_line(lists.logits, called, is_counted=is_counted)
        self.lines: tuple[StraightLine, StraightLine] = (forward, logits)
        self.forward: Callable[..., torch.Tensor] = forward.call
        self.compute_logits: Callable[..., torch.Tensor] = logits.call


def callees(model: nn.Module, lists: FlatLists) -> dict[str, Callable[..., Any]]:
    """What nodes of a model's lists call, by path: ops and attention layers, or whatever stands in
    their place by now."""
    nodes = (*lists.forward.nodes, *lists.logits.nodes)
    return {node.path: model.get_submodule(node.path) for node in nodes}
