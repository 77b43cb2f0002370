"""Adapters at the level of the contract: the class that the platform names, made and called."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from dougong.contracts import LoRAWrapper

from dougong_conformance.drivers.placing import to_device
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("lora.run")
def run(session: Session, *, steps: list[dict[str, Any]]) -> list[torch.Tensor]:
    """Steps of one wrapper.

    Args:
        session: Of this process.
        steps: Each ``indices``, then the calls of ``add_lora_linear`` of that step: ``calls`` with
            ``out``, ``x``, ``lora_a``, ``lora_b`` and ``scale``.

    Returns:
        ``out`` after each call.
    """
    device, found = session.device, []
    with session.runtime.inference_mode():
        wrapper = _wrapper(session)
        for step in steps:
            wrapper.update_metadata(to_device(step["indices"], device))
            for call in step["calls"]:
                out, x, a, b = (
                    to_device(call[name], device) for name in ("out", "x", "lora_a", "lora_b")
                )
                wrapper.add_lora_linear(out, x, a, b, call["scale"])
                session.runtime.synchronize()
                found.append(out.cpu().clone())
    return found


def _wrapper(session: Session) -> LoRAWrapper:
    target = session.platform.get_punica_wrapper()
    if target is None:
        raise LookupError(f"platform {session.platform.name} names no LoRA wrapper")
    module, _, attribute = target.partition(":")
    made: LoRAWrapper = getattr(importlib.import_module(module), attribute)()
    return made
