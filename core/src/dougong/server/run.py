"""A server from its first line of log to its exit: engine, socket, signals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
import uvloop

from dougong.config import EngineArgs
from dougong.engine.async_engine import AsyncEngine
from dougong.engine.long_lived import keep_for_good
from dougong.errors import ConfigError, DougongError
from dougong.log import get_logger
from dougong.server.app import make_app
from dougong.server.bounded_http import BoundedHttp
from dougong.server.serving import Serving
from dougong.server.settings import ServerSettings
from dougong.server.stopping import StoppableServer

_logger = get_logger(__name__)
_BACKLOG = 2048
_KEEP_ALIVE_S = 30


def serve(args: EngineArgs, settings: ServerSettings, *, chat_template: str | None = None) -> None:
    """Serve a model until told to stop.

    Args:
        args: The engine's options.
        settings: The server's.
        chat_template: A file or a template that replaces the checkpoint's own.

    Raises:
        ConfigError: What was asked for cannot work.
        EngineDeadError: The engine died while it served.
        DougongError: The start failed, or answers were cut short at the end.
    """
    listener = bind(settings)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(args, settings, chat_template, listener))
    finally:
        listener.close()


def bind(settings: ServerSettings) -> socket.socket:
    """Take the address before a model is loaded; nobody is listened to yet.

    Raises:
        ConfigError: The address cannot be had.
    """
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        return _bound(family, address)
    except OSError as error:
        raise ConfigError(
            f"--host {settings.host} --port {settings.port}: {error.strerror or error}. "
            "Choose another port, or 0 for any free one."
        ) from error


def _bound(family: int, address: Any) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket) -> str:
    """``http://host:port``."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _serve(
    args: EngineArgs,
    settings: ServerSettings,
    chat_template: str | None,
    listener: socket.socket,
) -> None:
    async with _started(args, chat_template) as engine:
        serving = Serving(engine, settings)
        closing: list[asyncio.Task[None]] = []

        def stop_admission() -> None:
            serving.admission.is_stopping = True

        def close_engine() -> None:
            serving.watch.is_closing = True
            closing.append(asyncio.create_task(engine.close()))

        server = StoppableServer(
            uvicorn_config(serving),
            on_stopping=stop_admission,
            cut_short=close_engine,
            drain_timeout_s=settings.drain_timeout_s,
        )
        keep_for_good()
        watching = asyncio.create_task(_watch(serving, server))
        reading = asyncio.create_task(serving.status.run())
        listener.listen(_BACKLOG)
        _announce(serving, listener)
        try:
            await server.serve(sockets=[listener])
        finally:
            watching.cancel()
            reading.cancel()
            serving.close()
            await asyncio.gather(watching, reading, *closing, return_exceptions=True)
    _raise_how_it_ended(serving, server)


@asynccontextmanager
async def _started(args: EngineArgs, chat_template: str | None) -> AsyncIterator[AsyncEngine]:
    options = {name: getattr(args, name) for name in args.option_names()}
    async with await AsyncEngine.start(**options, chat_template=chat_template) as engine:
        yield engine


def uvicorn_config(serving: Serving) -> uvicorn.Config:
    """How the application is served."""
    return uvicorn.Config(
        make_app(serving),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        loop="none",
        http=BoundedHttp,
        ws="none",
    )


async def _watch(serving: Serving, server: StoppableServer) -> None:
    """Stop the server some time after its engine died; until then it tells whoever asks."""
    await serving.watch.run()
    if not server.should_exit:
        await asyncio.sleep(serving.settings.dead_engine_grace_s)
        server.stop("the engine is dead")


def _announce(serving: Serving, listener: socket.socket) -> None:
    settings = serving.settings
    names = ", ".join(settings.model_names)
    _logger.info("serving %s at %s", names, address_of(listener))
    if not serving.engine.tokenizer.has_chat_template:
        _logger.warning(
            "/v1/chat/completions is unavailable: the model has no chat template; "
            "--chat-template FILE supplies one"
        )
    if not (settings.is_local or settings.api_keys):
        _logger.warning(
            "whoever reaches %s can use this server: there is no --api-key", settings.host
        )


def _raise_how_it_ended(serving: Serving, server: StoppableServer) -> None:
    if server.was_cut_short:
        raise DougongError(
            "The server was stopped before every answer was whole; those were ended with an error."
        )
    if serving.watch.death is not None:
        raise serving.watch.death
