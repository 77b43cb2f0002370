from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import typer

from dougong.cli import main as command_line
from dougong.errors import ConfigError, DougongError, PluginError


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    logger = logging.getLogger("dougong")
    level, handlers, propagates = logger.level, logger.handlers[:], logger.propagate
    yield
    logger.level, logger.handlers[:], logger.propagate = level, handlers, propagates


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        command_line.main(arguments)
    return int(stopped.value.code or 0)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[DougongError]:
    """A subcommand ``work N`` that raises what the test puts into the list."""
    module, errors = ModuleType("work_command"), list[DougongError]()
    module.app = typer.Typer()  # type: ignore[attr-defined]  # what a command's module is made of

    @module.app.command()  # type: ignore[untyped-decorator]  # of an untyped module
    def work(number: int) -> None:
        """Work hard."""
        typer.echo(f"worked {number}")
        for error in errors:
            raise error from ValueError("the cause")

    monkeypatch.setitem(sys.modules, "work_command", module)
    monkeypatch.setattr(command_line, "COMMANDS", {"work": ("work_command", "Work.")})
    return errors


def test_the_list_of_commands_needs_none_of_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "COMMANDS", {"work": ("no_such_module", "Work.")})
    assert _run("--help") == 0
    text = capsys.readouterr().out
    assert "Work." in text
    assert "Exit codes" in text


def test_a_command_runs_with_its_arguments(
    command: list[DougongError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("work", "3") == 0
    assert capsys.readouterr().out == "worked 3\n"


def test_a_commands_own_help_is_its_docstring(
    command: list[DougongError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("work", "--help") == 0
    assert "Work hard." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError("bad", ("one", "two")), 2), (PluginError("first\nlast"), 3)]
)
def test_an_error_is_one_message_on_stderr_and_a_code(
    command: list[DougongError],
    capsys: pytest.CaptureFixture[str],
    error: DougongError,
    code: int,
) -> None:
    command.append(error)
    assert _run("work", "3") == code
    out, err = capsys.readouterr()
    assert out == "worked 3\n"
    assert err == f"dougong: error: {error}\n"


def test_debug_shows_the_traceback_and_the_cause_before_the_message(
    command: list[DougongError], capsys: pytest.CaptureFixture[str]
) -> None:
    command.append(ConfigError("bad"))
    assert _run("--debug", "work", "3") == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ValueError: the cause" in err
    assert err.endswith("dougong: error: bad\n")


def test_a_wrong_option_or_command_ends_with_2(command: list[DougongError]) -> None:
    assert _run("work", "three") == 2
    assert _run("wrok") == 2


def test_a_setting_that_cannot_be_understood_is_a_config_error(
    command: list[DougongError],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOUGONG_LOG_LEVEL", "loud")
    assert _run("work", "3") == 2
    assert "DOUGONG_LOG_LEVEL" in capsys.readouterr().err


def test_the_version_names_the_contract_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--version") == 0
    assert "(contract 1." in capsys.readouterr().out


def test_every_command_has_a_module_and_a_summary() -> None:
    for module, summary in command_line.COMMANDS.values():
        assert module.startswith("dougong.cli.")
        assert summary.endswith(".")
