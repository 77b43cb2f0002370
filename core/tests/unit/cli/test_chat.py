from __future__ import annotations

import io

import pytest

from tests.support.command_line import run_command
from tests.support.stub_server import Script, stub_server

Capture = pytest.CaptureFixture[str]


def test_a_conversation_with_a_server_reads_lines_and_writes_answers(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nand you?\n"))
    script = Script()
    with stub_server(script) as url:
        options = ("--system", "Be kind.", "--max-tokens", "5", "--temperature", "0", "--seed", "1")
        assert run_command("chat", "--url", url, *options) == 0
    shown = capsys.readouterr()
    assert shown.out == "Hello you there\n" * 2
    assert f"stub at {url}" in shown.err
    assert "(3 tokens, first after" in shown.err
    first, second = script.asked
    assert first["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
    ]
    assert (first["max_tokens"], first["temperature"], first["seed"]) == (5, 0, 1)
    assert [one["content"] for one in second["messages"]][2:] == ["Hello you there", "and you?"]


@pytest.mark.parametrize("options", [("demo",), ("--model", "x"), ("--chat-template", "x")])
def test_a_server_has_its_own_model_and_template(capsys: Capture, options: tuple[str, ...]) -> None:
    assert run_command("chat", "--url", "http://127.0.0.1:9", *options) == 2
    assert "--url names a server" in capsys.readouterr().err


def test_a_wrong_number_is_refused_before_anything_is_loaded(capsys: Capture) -> None:
    assert run_command("chat", "--temperature", "-1") == 4
    assert "temperature" in capsys.readouterr().err
