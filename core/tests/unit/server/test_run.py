from __future__ import annotations

import socket

import pytest

from dougong.config import EngineArgs
from dougong.engine import AsyncEngine
from dougong.errors import ConfigError
from dougong.server import run
from dougong.server.settings import ServerSettings


def settings(host: str, port: int) -> ServerSettings:
    return ServerSettings(model_names=("m",), host=host, port=port)


def test_any_free_port_may_be_asked_for_and_is_told() -> None:
    with run.bind(settings("127.0.0.1", 0)) as listener:
        assert listener.getsockname()[1] != 0
        assert run.address_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_taken_port_is_told_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("loads a model")

    monkeypatch.setattr(AsyncEngine, "start", start)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port}"):
            run.serve(EngineArgs(model="m"), settings("127.0.0.1", port))


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--host 192\.0\.2\.1"):
        run.bind(settings("192.0.2.1", 0))
