"""HTTP/1.1 as a load generator needs it: many streams at a time, little work for each piece.

What arrives is kept with its time and read later, so that the reader of the answers is not what is
measured. One connection carries one exchange at a time and is used again afterwards.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from urllib.parse import urlsplit

from dougong.errors import ConfigError

_LINE = b"\r\n"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A server.

    Attributes:
        host: Name or address.
        port: Of it.
        is_tls: Whether it speaks https.
        base: Path before every route, without a slash at its end; ``/v1`` is left out.
        headers: Sent with every request.
    """

    host: str
    port: int
    is_tls: bool = False
    base: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, url: str, api_key: str | None = None) -> Target:
        """From what a user writes; ``/v1`` at its end may be there or not.

        Raises:
            ConfigError: It is no such URL.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port == -1:
            raise ConfigError(f"--url {url} is no address of a server. Write http://HOST:PORT.")
        base = parts.path.rstrip("/").removesuffix("/v1")
        return cls(
            host=parts.hostname,
            port=port or _DEFAULT_PORTS[parts.scheme],
            is_tls=parts.scheme == "https",
            base=base,
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
        )

    @property
    def url(self) -> str:
        """Of the server, up to its routes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.base}"

    def request(self, method: str, route: str, body: bytes = b"") -> bytes:
        """A whole request."""
        lines = [f"{method} {self.base}{route} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@dataclass(slots=True)
class Exchange:
    """A request and what came back; times are of ``perf_counter``.

    Attributes:
        sent_s: When the request was handed over, its connection made already.
        status: 0: none came.
        pieces: When a piece of the body was whole, and the piece.
        ended_s: When the answer was whole, or the connection ended.
        error: Why the answer is not whole; ``None``: it is.
    """

    sent_s: float = 0.0
    status: int = 0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    ended_s: float = 0.0
    error: str | None = None

    @property
    def body(self) -> bytes:
        """All pieces together."""
        return b"".join([piece for _, piece in self.pieces])


class Connection(asyncio.Protocol):
    """One connection to a server; made by `Connections`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._ended: asyncio.Future[None] | None = None
        self._buffer = bytearray()
        self._is_in_body = False
        self._is_chunked = False
        self._num_missing: int | None = None  # of a body with a length; None: up to the end
        self.is_usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def ask(self, request: bytes) -> Exchange:
        """Send a request and wait until its answer is whole, or will never be."""
        assert self._transport is not None
        self._ended = asyncio.get_running_loop().create_future()
        exchange = self._exchange = Exchange(sent_s=perf_counter())
        self._transport.write(request)
        try:
            await self._ended
        except asyncio.CancelledError:
            self.close()
            raise
        return exchange

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        now_s, exchange = perf_counter(), self._exchange
        if exchange is None:
            self.close()  # nobody asked
            return
        self._buffer += data
        try:
            if not self._is_in_body:
                self._read_head(exchange)
            if self._is_in_body:
                self._read_body(exchange, now_s)
        except ValueError as error:
            self._end(f"the answer is not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.is_usable = False
        is_whole = self._is_in_body and not self._is_chunked and self._num_missing is None
        self._end(None if is_whole and exc is None else f"the connection ended: {exc or 'closed'}")

    def close(self) -> None:
        """End the connection."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    def _read_head(self, exchange: Exchange) -> None:
        head, blank, rest = self._buffer.partition(_LINE + _LINE)
        if not blank:
            return
        self._buffer = rest
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(first[:40])
        exchange.status = int(status[:3])
        if exchange.status < 200:
            return
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        self._is_in_body = True
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length")
        self._num_missing = None if length is None else int(length)
        if headers.get("connection", "").lower() == "close":
            self.is_usable = False

    def _read_body(self, exchange: Exchange, now_s: float) -> None:
        if self._is_chunked:
            self._read_chunks(exchange, now_s)
            return
        piece = bytes(self._buffer)
        self._buffer.clear()
        if piece:
            exchange.pieces.append((now_s, piece))
        if self._num_missing is not None:
            self._num_missing -= len(piece)
            if self._num_missing <= 0:
                self._end(None)

    def _read_chunks(self, exchange: Exchange, now_s: float) -> None:
        buffer, at = self._buffer, 0
        while (line_end := buffer.find(_LINE, at)) >= 0:
            size = int(bytes(buffer[at:line_end]).partition(b";")[0], 16)
            begin = line_end + 2
            if len(buffer) < begin + size + 2:
                break
            at = begin + size + 2
            if not size:
                self._end(None)
                return
            exchange.pieces.append((now_s, bytes(buffer[begin : begin + size])))
        del buffer[:at]

    def _end(self, error: str | None) -> None:
        exchange, ended = self._exchange, self._ended
        if exchange is None or ended is None:
            return
        exchange.ended_s, exchange.error = perf_counter(), error
        self._exchange = self._ended = None
        self._buffer.clear()
        self._is_in_body = False
        self.is_usable = self.is_usable and error is None
        if not ended.done():
            ended.set_result(None)


class Connections:
    """Connections to one server, each used again once it is free.

    Args:
        target: The server.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._free: list[Connection] = []
        self._context = ssl.create_default_context() if target.is_tls else None

    async def open(self, count: int) -> None:
        """Make connections before they are needed.

        Raises:
            OSError: The server cannot be reached.
        """
        self._free += [await self._connect() for _ in range(count)]

    async def ask(self, method: str, route: str, body: bytes = b"") -> Exchange:
        """One request; what goes wrong is in the exchange."""
        try:
            connection = self._take() or await self._connect()
        except OSError as error:
            now_s = perf_counter()
            return Exchange(now_s, ended_s=now_s, error=f"no connection: {error}")
        exchange = await connection.ask(self._target.request(method, route, body))
        if connection.is_usable:
            self._free.append(connection)
        else:
            connection.close()
        return exchange

    def close(self) -> None:
        """End the free connections."""
        for connection in self._free:
            connection.close()
        self._free.clear()

    def _take(self) -> Connection | None:
        while self._free:
            if (connection := self._free.pop()).is_usable:
                return connection
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        target = self._target
        _, connection = await loop.create_connection(
            Connection, target.host, target.port, ssl=self._context
        )
        return connection
