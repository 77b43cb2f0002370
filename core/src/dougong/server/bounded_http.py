"""HTTP from a socket, of which no client can make the server keep any amount before it is read."""

from __future__ import annotations

from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dougong.server.errors import ErrorAnswer

MAX_HEAD_BYTES = 64 * 2**10
HANG_UP_AFTER_S = 1.0
_REASONS = {400: "Bad Request", 431: "Request Header Fields Too Large"}


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's quick reader, which by itself keeps heads and trailers of any size.

    What is no HTTP is refused in the shape that every refusal has.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See uvicorn."""
        super().__init__(*args, **kwargs)
        self._num_unread = 0  # bytes since the last one that was understood
        self._is_refused = False

    def data_received(self, data: bytes) -> None:
        """Read on; end a connection that sends and sends and never comes to the point."""
        if self._is_refused:
            return
        self._num_unread += len(data)
        super().data_received(data)
        if self._num_unread > MAX_HEAD_BYTES and not self._is_refused:
            self._refuse(
                431,
                f"The request's line and headers together have more than {MAX_HEAD_BYTES} bytes. "
                "Send less of them.",
            )

    def on_headers_complete(self) -> None:
        """See uvicorn."""
        self._num_unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See uvicorn."""
        self._num_unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See uvicorn."""
        self._num_unread = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """See uvicorn."""
        self._refuse(400, "What came is not HTTP/1.1 as this server reads it. Mend the client.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer and hang up; an answer that is being sent is not written into.

        Whoever is still sending would not see the answer if the connection were closed at once.
        """
        self._is_refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        content = msgspec.json.encode(ErrorAnswer(status, "invalid_request_error", message).body())
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.write_eof()
        self.loop.call_later(HANG_UP_AFTER_S, self.transport.close)
