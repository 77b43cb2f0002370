from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from dougong.cli.model_argument import model_of
from dougong.errors import ConfigError


def asked(*arguments: str) -> str:
    app = typer.Typer()

    @app.command()
    def command(context: typer.Context, reference: str | None = None, model: str = "demo") -> None:
        typer.echo(model_of(context, model, reference))

    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None:
        raise done.exception
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        ([], "demo"),
        (["--model", "a"], "a"),
        (["--reference", "a"], "a"),
        (["--reference", "a", "--model", "a"], "a"),
    ],
)
def test_the_model_is_taken_from_where_it_was_given(arguments: list[str], model: str) -> None:
    assert asked(*arguments) == model


@pytest.mark.parametrize("option", ["b", "demo"])
def test_two_models_are_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=f"a and --model {option}"):
        asked("--reference", "a", "--model", option)
