"""The model of a command that takes it as an argument and as ``--model``."""

from __future__ import annotations

import typer

from dougong.errors import ConfigError


def model_of(context: typer.Context, option: str, reference: str | None) -> str:
    """The model, from where it was given.

    Raises:
        ConfigError: It was given twice, and not the same.
    """
    if reference is None:
        return option
    if _has_option(context) and option != reference:
        raise ConfigError(
            f"Two models were given: {reference} and --model {option}. Give one of them."
        )
    return reference


def is_model_given(context: typer.Context, reference: str | None) -> bool:
    """Whether the user named a model in either way."""
    return reference is not None or _has_option(context)


def _has_option(context: typer.Context) -> bool:
    source = context.get_parameter_source("model")
    return source is not None and source.name != "DEFAULT"
