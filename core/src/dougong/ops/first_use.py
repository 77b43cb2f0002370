"""The first time implementations run: those that raise, or write what they may not, are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from torch import nn

from dougong.contracts import DeviceError, ImplementationError, KernelFault
from dougong.contracts.rank_plan import NATIVE
from dougong.ops.argument_copies import ArgumentCopies
from dougong.ops.custom_op import CustomOp
from dougong.ops.dispatch import BoundPiece
from dougong.ops.failures import blames_implementation, reason_of
from dougong.ops.guard import Classified, Guard
from dougong.ops.outline import named_ops


@contextmanager
def watch_first_use(
    *modules: nn.Module,
    synchronize: Callable[[], None],
    classified: Classified = nullcontext,
) -> Iterator[None]:
    """Guard every implementation that is not native while the block runs.

    The device is synchronised before and after each guarded call, so that an error that arrives
    late is not laid at the next one's door. Tensors an implementation is given are compared with
    copies on the host, once per op that is unlike the others, and it may have changed what it
    declares. Where one fails, native goes on in its place, if the op's weights are still there, so
    that one run finds all that fail; after a `KernelFault` nothing goes on.

    Args:
        modules: Whose ops are bound.
        synchronize: Waits for the device, and raises what went wrong there.
        classified: Put around each call; turns a vendor's exceptions into `DeviceError` where they
            are one.

    Raises:
        ImplementationError: When the block ends, or when it cannot go on: implementations raised,
            or wrote to arguments they do not declare. All are named, with the op and its place.
        DeviceError: The device failed in another way than a kernel's fault.
    """
    ops = [op for module in modules for _, op in named_ops(module)]
    bound = [
        (op, op.pieces) for op in ops if any(piece.implementation != NATIVE for piece in op.pieces)
    ]
    watch = _Watch(Guard(synchronize, classified))
    try:
        for op, pieces in bound:
            op.bind_pieces(watch.guarded(op, piece) for piece in pieces)
        yield
    except DeviceError:
        raise
    except Exception as exc:
        if not watch.failures:
            raise
        more = exc.failures if isinstance(exc, ImplementationError) else {}
        raise ImplementationError({**watch.failures, **more}) from (watch.cause or exc)
    finally:
        for op, pieces in bound:
            op.bind_pieces(pieces)
    if watch.failures:
        raise ImplementationError(watch.failures) from watch.cause


class _Watch:
    """What went wrong so far.

    Attributes:
        failures: Implementation → how it failed first.
        cause: The first exception among them.
    """

    def __init__(self, guard: Guard) -> None:
        self.failures: dict[str, str] = {}
        self.cause: Exception | None = None
        self._guard = guard
        self._compared: set[object] = set()

    def guarded(self, op: CustomOp, piece: BoundPiece) -> BoundPiece:
        """The piece, watched; a native one as it is."""
        if piece.implementation == NATIVE:
            return piece

        def call(*args: Any) -> Any:
            if piece.implementation in self.failures and _has_weights(op):
                return op.forward_native(*args)
            self._guard.settle()
            copies = self._copies(op, piece, args)
            try:
                result = self._guard.run(lambda: piece.call(*args))
            except Exception as exc:
                if not blames_implementation(exc):
                    raise
                self._note(op, piece, reason_of(exc), exc)
                if isinstance(exc, KernelFault) or not _has_weights(op):
                    raise ImplementationError(self.failures) from exc
                return op.forward_native(*(copies.restored() if copies else args))
            if copies and (written := copies.changed(allowed=piece.mutates)):
                self._note(op, piece, f"it wrote to {', '.join(written)}; {_declared(op, piece)}")
            return result

        return replace(piece, call=call)

    def _note(
        self, op: CustomOp, piece: BoundPiece, reason: str, exc: Exception | None = None
    ) -> None:
        self.failures.setdefault(piece.implementation, f"op {op.key} at {op.path}: {reason}")
        self.cause = self.cause or exc

    def _copies(
        self, op: CustomOp, piece: BoundPiece, args: tuple[Any, ...]
    ) -> ArgumentCopies | None:
        """Copies for the first of several ops alike, called with what looks alike."""
        shapes = tuple(getattr(arg, "shape", None) for arg in args)
        kind = (op.key, piece.implementation, tuple(op.properties().items()), shapes)
        if kind in self._compared:
            return None
        self._compared.add(kind)
        return ArgumentCopies(op.arg_names(), args)


def _has_weights(op: CustomOp) -> bool:
    """Whether no prepared kernel has given the op's weights back."""
    return all(parameter.numel() for parameter in op.parameters())


def _declared(op: CustomOp, piece: BoundPiece) -> str:
    if piece.mutates:
        return f"it declares {', '.join(piece.mutates)} (mutates)"
    if op.may_mutate:
        return f"it declares nothing (mutates); {op.key} allows {', '.join(op.may_mutate)}"
    return f"{op.key} allows no argument to be overwritten"
