from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from dougong.engine.tokenizer import Tokenizer
from dougong.server.app import make_app
from dougong.server.serving import Serving
from dougong.server.settings import ServerSettings
from tests.support.fake_engine import FakeEngine, tiny_tokenizer

SETTINGS = ServerSettings(model_names=("tiny", "also/tiny"))


@dataclass
class Served:
    """An application in this process, its engine, and a client of it."""

    engine: FakeEngine
    serving: Serving
    app: Any
    client: httpx.AsyncClient

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.client.post(path, json=body)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def engine(tokenizer: Tokenizer) -> FakeEngine:
    return FakeEngine(tokenizer)


@pytest.fixture
async def serve(tokenizer: Tokenizer) -> AsyncIterator[Callable[..., Served]]:
    """Makes the application with changed settings, or over another engine."""
    made: list[Served] = []

    def make(engine: FakeEngine | None = None, **changes: Any) -> Served:
        served_engine = engine or FakeEngine(tokenizer)
        serving = Serving(served_engine, replace(SETTINGS, **changes))
        app = make_app(serving)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://server")
        made.append(Served(served_engine, serving, app, client))
        return made[-1]

    yield make
    for served in made:
        await served.client.aclose()
        served.serving.close()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()
