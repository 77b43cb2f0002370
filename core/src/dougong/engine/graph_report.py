"""What became of a plan's graphs, as the ranks tell it once they are ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dougong.errors import PluginError
from dougong.executor import Executor

_KIB, _MIB = 1024, 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphReport:
    """Captured steps of the rank whose graphs take most.

    Attributes:
        sizes: ``"decode"``, ``"piecewise"`` or ``"full"`` → captured sizes, ascending.
        num_bytes: What they take on the device.
        max_bytes: What they may take.
        dropped: Those that did not fit, as ``"piecewise 256"``.
    """

    sizes: Mapping[str, tuple[int, ...]]
    num_bytes: int
    max_bytes: int
    dropped: tuple[str, ...] = ()

    def line(self) -> str:
        """For the log."""
        kinds = (f"{kind}, {_counted(sizes)}" for kind, sizes in self.sizes.items())
        return f"graphs: {'; '.join(kinds)}; {_size(self.num_bytes)}"

    def warning(self) -> str:
        """What the operator should know; empty: nothing."""
        if not self.dropped:
            return ""
        return (
            f"graphs {', '.join(self.dropped)} were not captured: with them the graphs would take "
            f"more than graph_memory_bytes={self.max_bytes} ({_size(self.max_bytes)}). Steps that "
            "need them run eagerly; give graphs more memory, or ask for smaller --graph-sizes."
        )


def graph_report(executor: Executor) -> GraphReport | None:
    """What the ranks tell; ``None``: nothing is captured, or nobody tells.

    Raises:
        PluginError: A worker's numbers of its graphs cannot be read.
    """
    told = [rank["graphs"] for rank in executor.collect() if rank.get("graphs")]
    try:
        return max(map(_read, told), key=lambda one: one.num_bytes, default=None)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise PluginError(
            f"a worker's collect() tells of its graphs as {told!r}, which cannot be read: "
            f"{type(exc).__name__}: {exc}; it must be as ReferenceWorker.collect() gives it"
        ) from exc


def _read(numbers: Mapping[str, Any]) -> GraphReport:
    return GraphReport(
        sizes={str(kind): tuple(map(int, sizes)) for kind, sizes in numbers["sizes"].items()},
        num_bytes=int(numbers["num_bytes"]),
        max_bytes=int(numbers["max_bytes"]),
        dropped=tuple(map(str, numbers["dropped"])),
    )


def _counted(sizes: tuple[int, ...]) -> str:
    return f"1 size, {sizes[0]}" if len(sizes) == 1 else f"{len(sizes)} sizes up to {sizes[-1]}"


def _size(num_bytes: int) -> str:
    if num_bytes < _MIB:
        return f"{num_bytes / _KIB:.0f} KiB"
    return f"{num_bytes / _MIB:.0f} MiB"
