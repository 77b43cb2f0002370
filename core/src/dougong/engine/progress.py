"""A bar for many prompts, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dougong.engine.live_request import LiveRequest

Advance = Callable[[Sequence[LiveRequest], int], None]
_REFRESH_S = 0.2


@contextmanager
def generation_progress(num_prompts: int, is_wanted: bool | None) -> Iterator[Advance]:
    """Give a function to call after each step with the changed requests and the new tokens.

    Args:
        num_prompts: Prompts in all.
        is_wanted: ``None``: only on a terminal, for more than one prompt.
    """
    if is_wanted is None:
        is_wanted = num_prompts > 1 and sys.stderr.isatty()
    if not is_wanted:
        yield lambda changed, num_tokens: None
        return
    with _bar(num_prompts) as advance:
        yield advance


@contextmanager
def _bar(num_prompts: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("generating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.1f} tokens/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        task = progress.add_task("generating", total=num_prompts, rate=0.0)
        begin = shown = time.monotonic()
        num_done = num_tokens = 0

        def advance(changed: Sequence[LiveRequest], new_tokens: int) -> None:
            nonlocal num_done, num_tokens, shown
            num_tokens += new_tokens
            num_done += sum(state.is_finished for state in changed)
            now = time.monotonic()
            if now - shown >= _REFRESH_S or num_done == num_prompts:
                shown = now
                rate = num_tokens / max(now - begin, 1e-9)
                progress.update(task, completed=num_done, rate=rate, refresh=True)

        yield advance
