"""What the tests of ``docs/patches.md`` share: a model, wheels of strangers, and what was counted.

Each test installs a wheel that imports only what is published, and does through the contract what
the record says somebody had to patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dougong import LLM
from tests.support.greedy import greedy_tokens
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub, count_calls
from tests.support.tiny_models import write_tiny_checkpoint


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Llama of two layers."""
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="session")
def expected(model: str) -> tuple[int, ...]:
    """What it answers to `greedy_tokens` without any wheel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUGONG_PLUGINS", "cpu")
        with LLM(model, platform="cpu", num_kv_blocks=20) as llm:
            return greedy_tokens(llm)


class Outside:
    """Wheels of strangers, and what their code told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stubs = folder / "stubs"
        self._installed = Installed(self._stubs, monkeypatch)
        self._told, self._names = folder / "told", ["cpu"]
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("STUB_COUNTER", str(self._told))

    def platform(self, body: str, hooks: str = "", **more: object) -> Stub:
        """Install a platform ``acme``."""
        stub = Stub(distribution="dougong-acme", name="acme", platform_body=body, hooks=hooks)
        return self.add(replace(stub, **more))  # type: ignore[arg-type]  # a test's own fields

    def extension(self, hooks: str) -> Stub:
        """Install a wheel without a platform, ``ops``, for every platform."""
        return self.add(
            Stub(distribution="dougong-ops", name="ops", has_platform=False, hooks=hooks)
        )

    def add(self, stub: Stub) -> Stub:
        """Install any; no other wheel of this environment is looked at."""
        self._names.append(stub.name)
        self._monkeypatch.setenv("DOUGONG_PLUGINS", ",".join(self._names))
        return self._installed.add(stub)

    def write_module(self, stub: Stub, name: str, source: str) -> None:
        """Put one more module into an installed wheel; it can ``count``."""
        head = f"from {stub.package}.counting import count\n"
        (self._stubs / stub.package / stub.package / name).write_text(head + source)

    def counts(self) -> Mapping[str, int]:
        """What was counted in all processes, and how often."""
        return {what: sum(by.values()) for what, by in count_calls(self._told).items()}

    def processes(self, what: str) -> set[int]:
        """Where something was counted."""
        return set(count_calls(self._told).get(what, ()))


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    """Nothing is installed yet."""
    return Outside(tmp_path, monkeypatch)
