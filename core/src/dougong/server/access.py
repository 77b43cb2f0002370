"""Before any route: who may ask, and the name that a request goes by."""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dougong.server.errors import (
    REQUEST_ID_HEADER,
    REQUEST_ID_KEY,
    HttpRequestError,
    error_answer,
)
from dougong.server.page import PAGE_PATHS
from dougong.server.settings import MAX_ID_LENGTH

OPEN_PATHS = frozenset({"/health", *PAGE_PATHS})
_REQUEST_ID = REQUEST_ID_HEADER.lower()


class ApiKeys:
    """Lets through who has a key; takes the same time for every wrong one.

    Args:
        app: What is guarded.
        keys: Any of them opens; never empty.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        error = HttpRequestError(
            "This server wants an API key: send `Authorization: Bearer KEY` with a right one.",
            status=401,
            code="invalid_api_key",
            field="Authorization",
        )
        await error_answer(error).response()(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        if scheme.lower() != b"bearer":
            return False
        found = [hmac.compare_digest(key.strip(), known) for known in self._keys]  # all of them
        return any(found)


class RequestIds:
    """Gives every answer the id its request came with, or a new one, as ``X-Request-Id``.

    Args:
        app: What answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 400 where the id cannot be repeated in a header or a log."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(_REQUEST_ID)
        request_id = uuid.uuid4().hex if given is None else given

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[_REQUEST_ID] = request_id
            await send(message)

        if given is None or _is_plain(given):
            scope[REQUEST_ID_KEY] = request_id
            await self._app(scope, receive, send_named)
            return
        error = HttpRequestError(
            f"X-Request-Id takes 1 to {MAX_ID_LENGTH} printable ASCII characters.",
            status=400,
            field="X-Request-Id",
        )
        await error_answer(error).response()(scope, receive, send)


def _is_plain(text: str) -> bool:
    return 0 < len(text) <= MAX_ID_LENGTH and text.isascii() and text.isprintable()
