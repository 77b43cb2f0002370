"""Which vendor's code a step failed in, so that whoever starts anew knows what to leave out.

A warm-up runs small steps, and one that is as large as a prompt would cost time before the first
token; so what raises at many tokens only is met in a request, and ends the engine.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

from dougong.attention import Attention
from dougong.contracts import Registration
from dougong.contracts.rank_plan import NATIVE
from dougong.ops.failures import blames_implementation
from dougong.ops.registry import OpRegistry
from dougong.planner import ExecutionPlan

_HEAD = "It came out of "


def note_blame(
    error: Exception, plan: ExecutionPlan, registrations: Iterable[Registration]
) -> None:
    """Add to an error which implementation it came out of, where its traceback shows one.

    Args:
        error: Of a step.
        plan: That runs.
        registrations: Of plugins.
    """
    if not blames_implementation(error):
        return
    codes = _codes_of_ops(plan, OpRegistry.from_registrations(registrations))
    for frame in _frames(error):
        told = codes.get(frame.f_code) or _attention(frame)
        if told:
            error.add_note(f"{_HEAD}{told}, and report this to its vendor.")
            return


def told_blame(error: BaseException) -> str:
    """What `note_blame` added, after a blank; empty: nothing."""
    notes: list[str] = getattr(error, "__notes__", [])
    return "".join(f" {note}" for note in notes if note.startswith(_HEAD))


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Innermost first, of the error and of those that it was made of."""
    seen: BaseException | None = error
    chain = []
    while seen is not None and seen not in chain:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    for one in reversed(chain):
        yield from reversed([frame for frame, _ in traceback.walk_tb(one.__traceback__)])


def _codes_of_ops(plan: ExecutionPlan, registry: OpRegistry) -> Mapping[CodeType, str]:
    """Code of what runs → its name, its op and how to do without."""
    codes: dict[CodeType, str] = {}
    for key, names in plan.implementations().items():
        for name in names:
            found = None if name == NATIVE else registry.find(key, name)
            for code in () if found is None else _codes(found.target):
                codes.setdefault(
                    code, f"{name}, which computes op {key}. Leave it out with --op {key}={NATIVE}"
                )
    return codes


def _codes(target: Any) -> Iterator[CodeType]:
    parts = vars(target).values() if isinstance(target, type) else (target,)
    for part in parts:
        code = getattr(inspect.unwrap(part), "__code__", None) if callable(part) else None
        if isinstance(code, CodeType):
            yield code


def _attention(frame: FrameType) -> str:
    if frame.f_code is not Attention.__call__.__code__:
        return ""
    layer: Attention = frame.f_locals["self"]
    backends = " or ".join(layer.backends)
    return (
        f"attention backend {backends} in layer {layer.layer_index}. Choose another one with "
        "--attention-backend"
    )
