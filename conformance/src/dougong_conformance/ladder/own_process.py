"""A function in a process of its own: torch has one place for devices that it does not know."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a function of a module in a fresh process; what it raises is raised here.

    Args:
        function: Found again by its module's name and its own, so no lambda and nothing local.
        args: For it; plain data.
        kwargs: Likewise.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(function, *args, **kwargs).result()
