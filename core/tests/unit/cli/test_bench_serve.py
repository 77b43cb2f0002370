from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import run_command
from tests.support.stub_server import Script, stub_server

Capture = pytest.CaptureFixture[str]
SMALL = ("--num-prompts", "4", "--input-len", "3", "--output-len", "3", "--num-warm-up", "1")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with stub_server(script) as address:
        yield address


@pytest.mark.parametrize("route", ["completions", "chat"])
def test_a_server_of_any_make_is_measured(
    script: Script, url: str, capsys: Capture, route: str
) -> None:
    command = ("bench", "serve", "--url", url, "--route", route, "--concurrency", "2", *SMALL)
    assert run_command(*command, "--api-key", "k", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["workload"]["model"] == "stub"
    assert record["results"]["num_whole_answers"] == 4
    assert record["results"]["p99_time_to_first_token_s"] > 0
    assert record["errors"] == {}
    assert record["versions"]["server"] == "unknown"
    assert len(script.asked) == 5
    assert {body["model"] for body in script.asked} == {"stub"}
    assert {headers["Authorization"] for headers in script.headers} == {"Bearer k"}


def test_a_result_is_kept_drawn_and_compared(url: str, capsys: Capture, tmp_path: Path) -> None:
    kept, plot = tmp_path / "kept.json", tmp_path / "plot.svg"
    command = ("bench", "serve", "--url", url, *SMALL)
    assert run_command(*command, "--save", str(kept), "--plot", str(plot)) == 0
    assert "time to first token" in capsys.readouterr().out
    assert plot.read_text().startswith("<svg")
    assert run_command(*command, "--against", str(kept), "--json") == 0
    assert json.loads(capsys.readouterr().out)["against"]["num_whole_answers"] == 1.0
    assert run_command(*command, "--seed", "9", "--against", str(kept)) == 2
    assert "seed: 9 now, 0 there" in capsys.readouterr().err


def test_some_errors_are_told_and_nothing_but_errors_fails(
    script: Script, url: str, capsys: Capture
) -> None:
    script.status = 429
    assert run_command("bench", "serve", "--url", url, *SMALL) == 1
    assert "No request got a whole answer. status 429" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("demo",), "Give one of them"),
        (("--model", "demo"), "Give one of them"),
        (("--plot", "x.png"), "NAME.svg"),
        (("--request-rate", "0"), "--request-rate 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_is_asked(
    script: Script, url: str, capsys: Capture, options: tuple[str, ...], told: str
) -> None:
    assert run_command("bench", "serve", "--url", url, *options, *SMALL) == 2
    assert told in capsys.readouterr().err
    assert script.asked == []


def test_a_server_without_a_list_of_models_needs_a_name(
    script: Script, url: str, capsys: Capture
) -> None:
    script.models = "[]"
    assert run_command("bench", "serve", "--url", url, *SMALL) == 1
    assert "--served-model-name" in capsys.readouterr().err
    assert run_command("bench", "serve", "--url", url, "--served-model-name", "it", *SMALL) == 0
    assert script.asked[0]["model"] == "it"
