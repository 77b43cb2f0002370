"""Answers from a server that runs already, of any make that speaks OpenAI's chat route."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from dougong.cli.chatting.session import AnswerStats, Message
from dougong.cli.http_exchange import Target
from dougong.errors import CapacityError, DougongError, RequestError

_ROUTE = "/v1/chat/completions"
_MOST_SHOWN = 500


class RemoteAnswerer:
    """Asks a server.

    Args:
        target: The server.
        model: As it is named to the server; ``None``: the first that it has.
        options: Fields of each request, beside the messages.
        timeout_s: Longest silence of a server.

    Raises:
        DougongError: The server cannot be reached, or names no model.
    """

    def __init__(
        self,
        target: Target,
        model: str | None,
        options: Mapping[str, Any],
        timeout_s: float = 600.0,
    ) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self.model = model or self._first_model()
        self._options = {"model": self.model, **options, "stream": True}

    def answer(self, messages: Sequence[Message], stats: AnswerStats) -> Generator[str]:
        """See `Answerer.answer`."""
        content = {
            **self._options,
            "messages": list(messages),
            "stream_options": {"include_usage": True},
        }
        with closing(self._connection()) as connection:
            response = self._ask(connection, "POST", _ROUTE, json.dumps(content).encode())
            yield from _texts(response, stats)

    def _first_model(self) -> str:
        with closing(self._connection()) as connection:
            response = self._ask(connection, "GET", "/v1/models")
            try:
                return str(json.load(response)["data"][0]["id"])
            except (ValueError, LookupError, TypeError) as error:
                raise DougongError(
                    f"{self._target.url} names no model at /v1/models; say which one with "
                    "--served-model-name."
                ) from error

    def _connection(self) -> http.client.HTTPConnection:
        target = self._target
        kind = http.client.HTTPSConnection if target.is_tls else http.client.HTTPConnection
        return kind(target.host, target.port, timeout=self._timeout_s)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        route: str,
        body: bytes | None = None,
    ) -> http.client.HTTPResponse:
        target = self._target
        headers = {**target.headers, "Content-Type": "application/json"}
        try:
            connection.request(method, target.base + route, body, headers)
            response = connection.getresponse()
            if response.status == 200:
                return response
            told = _message(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise DougongError(f"{target.url} cannot be asked: {error}.") from error
        if response.status in (429, 503):
            raise CapacityError(told)
        if 400 <= response.status < 500:
            raise RequestError(told)
        raise DougongError(f"{target.url} answered with status {response.status}: {told}")


def _texts(response: http.client.HTTPResponse, stats: AnswerStats) -> Iterator[str]:
    for event in _events(response):
        if "error" in event:
            raise DougongError(f"The answer broke off: {_told(event)}")
        for choice in event.get("choices") or ():
            stats.finish_reason = choice.get("finish_reason") or stats.finish_reason
            if text := (choice.get("delta") or {}).get("content"):
                yield text
        if usage := event.get("usage"):
            stats.num_tokens = usage.get("completion_tokens")


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The content of every event up to ``[DONE]``.

    Raises:
        DougongError: The stream ended before, or is no stream of events.
    """
    try:
        for line in response:
            if line.startswith(b"data:"):
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    return
                yield json.loads(data)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DougongError(f"The answer broke off: {error}.") from error
    raise DougongError("The answer broke off: the server closed the connection.")


def _message(body: bytes) -> str:
    try:
        return _told(json.loads(body))
    except (ValueError, TypeError, AttributeError):
        return body.decode(errors="replace")[:_MOST_SHOWN]


def _told(content: dict[str, Any]) -> str:
    error = content.get("error", content)
    return str(error.get("message", error) if isinstance(error, dict) else error)[:_MOST_SHOWN]
