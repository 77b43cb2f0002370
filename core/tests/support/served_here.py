"""A real server in a thread of this process: sockets, event loop, engine on the null platform."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import uvicorn
import uvloop

from dougong.engine.async_engine import AsyncEngine
from dougong.engine.core import EngineStats
from dougong.server.run import address_of, bind, uvicorn_config
from dougong.server.serving import Serving
from dougong.server.settings import ServerSettings

START_TIMEOUT_S = 60.0
SETTINGS = ServerSettings(model_names=("tiny",), port=0)


class QuietServer(uvicorn.Server):
    """Leaves this process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See uvicorn."""
        yield


class ServedHere:
    """A server for the time of a test.

    Args:
        model: See `AsyncEngine.start`.
        settings: Fields of `ServerSettings`.
        options: See `AsyncEngine.start`.

    Attributes:
        url: Where it listens.
        serving: What its routes share. To be read from outside only where that needs no lock.
    """

    def __init__(self, model: str, settings: dict[str, Any], **options: Any) -> None:
        self._model = model
        self._settings = replace(SETTINGS, **settings)
        self._options = options
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop
        self.serving: Serving
        self.url = ""
        self._thread = threading.Thread(target=self._run, name="served-here")
        self._thread.start()
        assert self._is_up.wait(START_TIMEOUT_S)
        if self._error is not None:
            raise self._error

    def client(self) -> httpx.Client:
        """One that keeps its connections."""
        return httpx.Client(base_url=self.url, timeout=30)

    def stats(self) -> EngineStats:
        """The engine now."""
        asked = asyncio.run_coroutine_threadsafe(self.serving.engine.stats(), self._loop)
        return asked.result(START_TIMEOUT_S)

    def metric(self, name: str, **labels: str) -> float:
        """A value as the engine's registry has it; 0 where nothing was counted yet."""
        found = self.serving.engine.metrics.get_sample_value(name, labels)
        return 0.0 if found is None else found

    def close(self) -> None:
        """End it, and every thread of it."""
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(START_TIMEOUT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self._error = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        options = {"in_own_process": False, **self._options}
        async with await AsyncEngine.start(self._model, **options) as engine:
            self.serving = Serving(engine, self._settings)
            works = (self.serving.status.run(), self.serving.watch.run())
            beside = [asyncio.create_task(work) for work in works]
            try:
                with bind(self._settings) as listener:
                    self.url = address_of(listener)
                    self._server = QuietServer(uvicorn_config(self.serving))
                    listener.listen(512)
                    self._is_up.set()
                    await self._server.serve(sockets=[listener])
            finally:
                for task in beside:
                    task.cancel()
                self.serving.close()
                await asyncio.gather(*beside, return_exceptions=True)


@contextmanager
def served_here(
    model: str, /, *, settings: dict[str, Any] | None = None, **options: Any
) -> Iterator[ServedHere]:
    """A server for the block's time."""
    server = ServedHere(model, settings or {}, **options)
    try:
        yield server
    finally:
        server.close()
