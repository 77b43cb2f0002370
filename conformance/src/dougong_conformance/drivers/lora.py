"""Adapters at the level of the contract: the class that the platform names, made and called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from dougong.contracts import LoRAWrapper

from dougong_conformance.drivers.graph import new_runner
from dougong_conformance.drivers.placing import Placed, place, to_device
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_KEY = "lora"


@procedure("lora.run")
def run(
    session: Session, *, max_loras: int, max_num_tokens: int, steps: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Steps of one wrapper.

    Args:
        session: Of this process.
        max_loras: Slots.
        max_num_tokens: Of a step at most.
        steps: Each ``indices``, then the calls of ``add_lora_linear`` of that step: ``calls`` with
            ``out`` (a tensor, or a part of one as `dougong_conformance.kit.place` says it), ``x``,
            ``lora_a``, ``lora_b`` and ``scale``.

    Returns:
        After each call ``out`` (the whole base of a part), ``x``, ``lora_a`` and ``lora_b``.
    """
    found = []
    with session.runtime.inference_mode():
        wrapper = _wrapper(session, max_loras, max_num_tokens)
        indices = torch.full((max_num_tokens,), -1, device=session.device)
        for step in steps:
            own = indices[: step["indices"].shape[0]]
            wrapper.update_metadata(own.copy_(step["indices"]))
            for call in step["calls"]:
                there = _placed(call, session.device)
                out, x, a, b = (one.part for one in there)
                wrapper.add_lora_linear(out, x, a, b, call["scale"])
                session.runtime.synchronize()
                names = ("out", "x", "lora_a", "lora_b")
                found.append(
                    {
                        name: one.base.cpu().contiguous().clone()
                        for name, one in zip(names, there, strict=True)
                    }
                )
    return found


@procedure("lora.replays")
def replays(
    session: Session,
    *,
    max_loras: int,
    call: dict[str, Any],
    steps: list[torch.Tensor],
) -> list[torch.Tensor] | None:
    """One call captured without a token that uses an adapter, then replayed with the indices of
    each step.

    Args:
        session: Of this process.
        max_loras: Slots.
        call: As in `run`.
        steps: Indices of each.

    Returns:
        ``out`` after each replay; ``None``: this platform captures nothing.
    """
    runner = new_runner(session)
    if runner is None:
        return None
    device, num_tokens, found = session.device, call["x"].shape[0], []
    with session.runtime.inference_mode():
        wrapper = _wrapper(session, max_loras, 2 * num_tokens)
        indices = torch.full((2 * num_tokens,), -1, device=device)
        there = _placed(call, device)
        before = there[0].base.clone()
        out, x, a, b = (one.part for one in there)
        wrapper.update_metadata(indices[:num_tokens])
        wrapper.add_lora_linear(out, x, a, b, call["scale"])  # once before the capture, as the core
        session.runtime.synchronize()
        with runner.capture(_KEY):
            wrapper.add_lora_linear(out, x, a, b, call["scale"])
        for one in steps:
            there[0].base.copy_(before)
            # A step of another size, which is not captured, comes in between.
            wrapper.update_metadata(indices.fill_(0))
            wrapper.update_metadata(indices[:num_tokens].copy_(one))
            runner.prepare_replay([])
            runner.replay(_KEY)
            session.runtime.synchronize()
            found.append(there[0].base.cpu().clone())
        runner.release(_KEY)
    return found


def _placed(call: Mapping[str, Any], device: torch.device) -> Sequence[Placed]:
    """``lora_b`` lies as the core lays it: the rows of each transposed ``B`` in order."""
    stored = to_device(call["lora_b"].transpose(1, 2), device).transpose(1, 2)
    out, x, a = (place(call[name], device) for name in ("out", "x", "lora_a"))
    return out, x, a, Placed(stored, stored)


def _wrapper(session: Session, max_loras: int, max_num_tokens: int) -> LoRAWrapper:
    target = session.platform.get_punica_wrapper()
    if target is None:
        raise LookupError(f"platform {session.platform.name} names no LoRA wrapper")
    module, _, attribute = target.partition(":")
    made: LoRAWrapper = getattr(importlib.import_module(module), attribute)(
        max_num_batched_tokens=max_num_tokens, max_loras=max_loras, device=session.device
    )
    return made
