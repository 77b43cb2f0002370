"""Servers of somebody else's make, over plain sockets."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dougong.cli.http_exchange import Target

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Script:
    """What a stub does; may be changed while it runs.

    Attributes:
        words: Of every answer, an event each.
        status: Of every answer to a question.
        refusal: Body of an answer with another status than 200.
        has_usage: Tells how many tokens there were.
        ends: Bytes after the words; the stream's end.
        asked: Body of every question.
        headers: Of every question.
    """

    words: list[str] = field(default_factory=lambda: ["Hello", " you", " there"])
    status: int = 200
    refusal: str = '{"error": {"message": "not like this"}}'
    has_usage: bool = True
    ends: bytes = b"data: [DONE]\n\n"
    models: str = '{"data": [{"id": "stub"}]}'
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def stub_server(script: Script) -> Iterator[str]:
    """A stub for the block's time; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self._whole(200, script.models)
            else:
                self._whole(404, "{}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.asked.append(body)
            script.headers.append(dict(self.headers.items()))
            if script.status != 200:
                self._whole(script.status, script.refusal)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            is_chat = "messages" in body
            for word in script.words:
                choice = {"delta": {"content": word}} if is_chat else {"text": word}
                self._event({"choices": [{**choice, "index": 0, "finish_reason": None}]})
            last: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
            self._event({"choices": [{**last, "index": 0, "finish_reason": "length"}]})
            if script.has_usage:
                usage = {"prompt_tokens": 7, "completion_tokens": len(script.words)}
                self._event({"choices": [], "usage": usage})
            if script.ends:
                self._chunk(script.ends)
            self._chunk(b"")

        def _event(self, content: dict[str, Any]) -> None:
            self._chunk(b"data: " + json.dumps(content).encode() + b"\n\n")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def _whole(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[Target]:
    """A server in this event loop for the block's time; whoever is connected then is cut off."""
    open_ones: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def watched() -> None:
            with suppress(ConnectionError):
                await handle(reader, writer)

        open_ones[asyncio.create_task(watched())] = writer

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    try:
        yield Target.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    finally:
        server.close()
        for task, writer in open_ones.items():
            task.cancel()
            writer.close()
        await asyncio.gather(*open_ones, return_exceptions=True)
        await server.wait_closed()
