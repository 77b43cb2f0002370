"""The first time implementations run: whichever raises is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from torch import nn

from dougong.contracts import ImplementationError
from dougong.contracts.rank_plan import NATIVE
from dougong.ops.binding import Classified
from dougong.ops.custom_op import CustomOp
from dougong.ops.dispatch import BoundPiece
from dougong.ops.failures import blames_implementation, reason_of
from dougong.ops.outline import named_ops


@contextmanager
def watch_first_use(
    *modules: nn.Module,
    synchronize: Callable[[], None],
    classified: Classified = nullcontext,
) -> Iterator[None]:
    """Guard every implementation that is not native while the block runs.

    The device is synchronised before and after each guarded call, so that an error that arrives
    late is not laid at the next one's door.

    Args:
        modules: Whose ops are bound.
        synchronize: Waits for the device, and raises what went wrong there.
        classified: Put around each call; turns a vendor's exceptions into `DeviceError` where they
            are one.

    Raises:
        ImplementationError: An implementation raised; it is named, with the op and its place in the
            model.
        DeviceError: The device failed in another way than a kernel's fault.
    """
    ops = [op for module in modules for _, op in named_ops(module)]
    bound = [
        (op, op.pieces) for op in ops if any(piece.implementation != NATIVE for piece in op.pieces)
    ]
    try:
        for op, pieces in bound:
            op.bind_pieces(_guarded(op, piece, synchronize, classified) for piece in pieces)
        yield
    finally:
        for op, pieces in bound:
            op.bind_pieces(pieces)


def _guarded(
    op: CustomOp, piece: BoundPiece, synchronize: Callable[[], None], classified: Classified
) -> BoundPiece:
    if piece.implementation == NATIVE:
        return piece

    def call(*args: Any) -> Any:
        with classified():
            synchronize()
        try:
            with classified():
                result = piece.call(*args)
                synchronize()
        except Exception as exc:
            if not blames_implementation(exc):
                raise
            reason = f"op {op.key} at {op.path}: {reason_of(exc)}"
            raise ImplementationError({piece.implementation: reason}) from exc
        return result

    return replace(piece, call=call)
