from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dougong.config import EngineArgs
from dougong.server import run
from dougong.server.settings import ServerSettings
from tests.support.command_line import run_command

Capture = pytest.CaptureFixture[str]
Served = list[tuple[EngineArgs, ServerSettings, str | None]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """What the command would have served."""
    seen: Served = []

    def serve(
        args: EngineArgs, settings: ServerSettings, *, chat_template: str | None = None
    ) -> None:
        seen.append((args, settings, chat_template))

    monkeypatch.setattr(run, "serve", serve)
    return seen


def test_what_is_left_open_is_safe(served: Served) -> None:
    assert run_command("serve") == 0
    ((args, settings, template),) = served
    assert args == EngineArgs(model="demo")
    assert settings == ServerSettings(model_names=("demo",))
    assert settings.is_local
    assert template is None


def test_every_option_arrives(served: Served) -> None:
    options: dict[str, Any] = {
        "--host": "0.0.0.0", "--port": 0, "--api-key": "k", "--cors-origin": "https://a.example",
        "--max-body-bytes": 5000, "--max-live-sequences": 3, "--drain-timeout": 2.5,
        "--dead-engine-grace": 0, "--chat-template": "{{ x }}", "--max-num-seqs": 4,
    }  # fmt: skip
    words = [str(word) for pair in options.items() for word in pair]
    names = ("--served-model-name", "one", "--served-model-name", "two")
    assert run_command("serve", "some/model", *words, *names) == 0
    ((args, settings, template),) = served
    assert args == EngineArgs(model="some/model", max_num_seqs=4)
    assert settings == ServerSettings(
        host="0.0.0.0",
        port=0,
        model_names=("one", "two"),
        api_keys=("k",),
        cors_origins=("https://a.example",),
        max_body_bytes=5000,
        max_live_sequences=3,
        drain_timeout_s=2.5,
        dead_engine_grace_s=0.0,
    )
    assert template == "{{ x }}"


def test_a_local_model_is_known_by_its_name_without_the_folders_above(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    run_command("serve", str(tmp_path / "mine"))
    run_command("serve", "hub/model")
    assert [settings.model_names for _, settings, _ in served] == [("mine",), ("hub/model",)]


def test_a_key_of_the_environment_is_used_where_no_option_gives_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOUGONG_API_KEY", "unseen")
    run_command("serve")
    run_command("serve", "--api-key", "seen", "--api-key", "other")
    assert [settings.api_keys for _, settings, _ in served] == [("unseen",), ("seen", "other")]


def test_what_cannot_be_is_told_before_anything_is_loaded(served: Served, capsys: Capture) -> None:
    assert run_command("serve", "--port", "70000", "--api-key", "") == 2
    told = capsys.readouterr().err
    assert "port=70000" in told
    assert "API key is empty" in told
    assert not served


def test_a_missing_model_ends_the_command_and_not_a_server(capsys: Capture) -> None:
    assert run_command("serve", "./nowhere", "--port", "0") == 2
    assert "nowhere" in capsys.readouterr().err
