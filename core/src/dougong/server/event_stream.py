"""Server-sent events: an answer in pieces that never pretends to be whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dougong.log import get_logger
from dougong.server.disconnect import ClientGoneError, while_connected
from dougong.server.errors import error_answer
from dougong.server.recent_errors import note_error

_logger = get_logger(__name__)
_DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode

Events = AsyncGenerator[dict[str, Any]]


class EventStream(Response):
    """Sends events as they come, then ``[DONE]``.

    An error after the first event becomes an event of its own and ends the stream without
    ``[DONE]``: the status was sent already, and a reader must not take the text for whole.

    Args:
        first: Sent at once.
        rest: Closed in any case, which ends the request behind it.
    """

    media_type = "text/event-stream"

    def __init__(self, first: dict[str, Any], rest: Events) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it all, or stop when the client leaves."""
        try:
            await while_connected(receive, self._send_all(scope, send))
        except ClientGoneError:
            _logger.debug("a client left its stream")
        finally:
            await self._rest.aclose()

    async def _send_all(self, scope: Scope, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            await _send_part(send, _event(self._first))
            async for event in self._rest:
                await _send_part(send, _event(event))
        except Exception as error:
            note_error(scope, error)
            answer = error_answer(error)
            if answer.status == 500:
                _logger.exception("a stream failed")
            await _send_part(send, _event(answer.body()))
        else:
            await _send_part(send, _DONE)
        await _send_part(send, b"", is_last=True)


async def _send_part(send: Send, data: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not is_last})


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + _encode(content) + b"\n\n"
