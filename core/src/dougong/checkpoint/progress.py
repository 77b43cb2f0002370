"""Progress bars on stderr: only on a terminal, or when asked for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dougong.checkpoint.tensors import TensorSource


class Advance(Protocol):
    """Told of work done."""

    def __call__(self, num_bytes: int) -> None:
        """Another ``num_bytes`` are done."""
        ...


def is_shown(progress: bool | None) -> bool:
    """Whether to draw: what was asked, or whether stderr is a terminal when nothing was."""
    return sys.stderr.isatty() if progress is None else progress


@contextlib.contextmanager
def byte_progress(title: str, total_bytes: int | None, progress: bool | None) -> Iterator[Advance]:
    """A bar that counts bytes; silent unless `is_shown`. ``None`` as total: it only pulses."""
    if not is_shown(progress):
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=total_bytes)
        yield lambda num_bytes: bar.advance(task, num_bytes)


def loading_progress(source: TensorSource, progress: bool | None = None) -> Iterator[str]:
    """Iterate over a source's tensor names in file order, drawing a bar meanwhile."""
    names = source.names()
    total_bytes = sum(source.num_bytes(name) for name in names)
    with byte_progress("Loading weights", total_bytes, progress) as advance:
        for name in names:
            yield name
            advance(source.num_bytes(name))


def _silent(num_bytes: int) -> None:
    del num_bytes
