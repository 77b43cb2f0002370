"""How to choose tokens, as options of a command that answers a prompt."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dougong.errors import ConfigError
from dougong.messages import StructuredOutput
from dougong.messages.request import SamplingParams

_HELP: dict[str, tuple[Any, Any, str]] = {
    "max_tokens": (int, 256, "Tokens to generate, at most."),
    "min_tokens": (int, 0, "Tokens before which the text does not end."),
    "temperature": (float, 0.0, "0: always the most likely token."),
    "top_p": (float, 1.0, "Keep the likeliest tokens up to this sum."),
    "top_k": (int, 0, "Keep this many likeliest tokens; 0: all."),
    "min_p": (float, 0.0, "Keep tokens at least this share as likely as the likeliest."),
    "repetition_penalty": (float, 1.0, "Above 1: what was read or written becomes less likely."),
    "frequency_penalty": (float, 0.0, "Taken for each time a token was written; -2 to 2."),
    "presence_penalty": (float, 0.0, "Taken once where a token was written; -2 to 2."),
    "seed": (int | None, None, "Makes a draw repeatable."),
    "stop": (list[str] | None, None, "Ends the text; repeatable."),
    "stop_token_id": (list[int] | None, None, "The same, as a token's id; repeatable."),
    "logit_bias": (list[str] | None, None, "ID=BIAS, added to a token's logit; repeatable."),
    "allowed_token_ids": (str | None, None, "Ids between commas; no other token is written."),
    "bad_word": (list[str] | None, None, "A text that is not written; repeatable."),
    "ignore_eos": (bool, False, "Go on after the end."),
    "logprobs": (int | None, None, "With --json: likeliest tokens to show at each one."),
    "prompt_logprobs": (int | None, None, "The same of the prompt."),
    "json_schema": (str | None, None, "File or JSON text: the answer is JSON that fits it."),
    "json_object": (bool, False, "The answer is a JSON object."),
    "regex": (str | None, None, "The answer matches it, all of it."),
    "choice": (list[str] | None, None, "The answer is one of these; repeatable."),
    "grammar": (str | None, None, "File or text of a Lark grammar that the answer follows."),
}
_FLAGS = {"ignore_eos", "json_object"}  # without a form that says no
_STRUCTURED = ("json_schema", "json_object", "regex", "choice", "grammar")
_RENAMED = {"stop_token_id": "stop_token_ids", "bad_word": "bad_words"}  # options, repeatable
_PANEL = "Sampling"


def with_sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every option of sampling; it receives them as ``params``."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        wishes = {name: options.pop(name) for name in _HELP}
        command(**options, params=sampling_params(wishes))

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "params"]
    vars(run)["__signature__"] = signature.replace(parameters=[*own, *map(_parameter, _HELP)])
    return run


def sampling_params(wishes: dict[str, Any]) -> SamplingParams:
    """What the options say together.

    Args:
        wishes: By option; every one of them.

    Raises:
        ConfigError: An option is malformed.
        RequestError: One is out of range, or does not go with another.
    """
    given = {_RENAMED.get(name, name): value for name, value in wishes.items() if value is not None}
    structured = {name: given.pop(name) for name in _STRUCTURED if name in given}
    for name in ("json_schema", "grammar"):
        if name in structured:
            structured[name] = _text_of(name, structured[name])
    if "logit_bias" in given:
        given["logit_bias"] = [_bias(one) for one in given["logit_bias"]]
    if "allowed_token_ids" in given:
        given["allowed_token_ids"] = _ids(given["allowed_token_ids"])
    if any(structured.values()):
        given["structured_output"] = StructuredOutput(**structured)
    return SamplingParams(**given)


def _parameter(name: str) -> inspect.Parameter:
    kind, default, text = _HELP[name]
    spelt = (f"--{name.replace('_', '-')}",) if name in _FLAGS else ()
    option = typer.Option(*spelt, help=text, rich_help_panel=_PANEL)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _text_of(name: str, value: str) -> str:
    """A file's text, where the value is a file's name; else the value."""
    path = Path(value).expanduser()
    try:
        return path.read_text("utf-8") if len(value) < 4096 and path.is_file() else value
    except (OSError, UnicodeDecodeError) as error:
        option = name.replace("_", "-")
        raise ConfigError(f"--{option} {value!r} cannot be read: {error}.") from error


def _bias(pair: str) -> tuple[int, float]:
    token_id, _, bias = pair.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise ConfigError(
            f"--logit-bias {pair!r} is malformed. Write ID=BIAS, as in 42=-100."
        ) from None


def _ids(listed: str) -> Sequence[int]:
    try:
        return [int(one) for one in listed.split(",")]
    except ValueError:
        raise ConfigError(
            f"--allowed-token-ids {listed!r} is malformed. Write ids between commas, as in 1,2,3."
        ) from None
