"""Watches a running model for computation outside its ops and its attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dougong.attention import Attention
from dougong.models import CausalLM, EncoderModel
from dougong.ops import CustomOp


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch annotates it not
    """Sees every call of torch's own operators; each is inside an op, a view, or found."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor this
        self.depth = 0
        self.num_inside = 0
        self.found: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.depth:
            self.num_inside += 1
        elif not (func.is_view and _memory(result) <= _memory(args)):
            self.found.append(str(func))
        return result

    def inside(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, in which anything may be computed."""

        def run(*args: Any) -> Any:
            self.depth += 1
            try:
                return call(*args)
            finally:
                self.depth -= 1

        return run

    def during(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, watched."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return call(*args, **kwargs)

        return run


def _memory(value: Any) -> set[int]:
    """Where the tensors in a call's arguments, or its result, lie: what must copy is no view."""
    if isinstance(value, tuple | list):
        return set().union(*map(_memory, value))
    return {value.untyped_storage().data_ptr()} if isinstance(value, torch.Tensor) else set()


@contextmanager
def watching(model: CausalLM | EncoderModel) -> Iterator[Watch]:
    """Watch the model's calls, two or an encoder's one; what ops and attention under it do is
    theirs."""
    watch, call_attention = Watch(), Attention.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CustomOp, "__call__", lambda op, *args: watch.inside(op._bound)(*args))
        patch.setattr(
            Attention, "__call__", lambda layer, *args: watch.inside(call_attention)(layer, *args)
        )
        patch.setattr(model, "forward", watch.during(model.forward))
        if not isinstance(model, EncoderModel):
            patch.setattr(model, "compute_logits", watch.during(model.compute_logits))
        yield watch
