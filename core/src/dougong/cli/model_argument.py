"""The model of a command that takes it as an argument and as ``--model``."""

from __future__ import annotations

import typer

from dougong.errors import ConfigError


def model_of(context: typer.Context, option: str, reference: str | None) -> str:
    """The model, from where it was given.

    Raises:
        ConfigError: It was given twice, and not the same.
    """
    source = context.get_parameter_source("model")
    is_given = source is not None and source.name != "DEFAULT"
    if reference is None:
        return option
    if is_given and option != reference:
        raise ConfigError(
            f"Two models were given: {reference} and --model {option}. Give one of them."
        )
    return reference
