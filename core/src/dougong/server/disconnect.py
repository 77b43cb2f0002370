"""Work for a client, given up when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")

CLIENT_GONE_STATUS = 499  # what proxies log; nobody is there to read it


class ClientGoneError(Exception):
    """The client closed its connection."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do ``work``, and cancel it as soon as the client is gone.

    Args:
        receive: The connection, its request read to the end.
        work: Ends all it began when it is cancelled.

    Raises:
        ClientGoneError: It left; ``work`` has ended.
    """
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for one in (task, leaving):
            one.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
