"""A checkpoint's chat template: Jinja in a sandbox, judged at start, rendered per request."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dougong.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from jinja2.parser import Parser


class ChatTemplate:
    """One compiled template.

    Templates see what `transformers` gives them: ``messages``, ``tools``,
    ``add_generation_prompt``, the special tokens by name, ``raise_exception``, ``strftime_now``, a
    ``tojson`` that escapes nothing, loop controls, and ``{% generation %}`` blocks.

    Args:
        source: Jinja source.
        special_tokens: ``bos_token``, ``eos_token``, ...: their texts.

    Raises:
        ConfigError: The template has a syntax error; says the line.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as exc:
            raise ConfigError(
                f"The chat template has a syntax error in line {exc.lineno}: {exc.message}. "
                "Correct it, or give another with --chat-template."
            ) from exc

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text of a conversation.

        Args:
            messages: Each with ``role`` and ``content``, in order.
            add_generation_prompt: End with the opening of the assistant's turn.
            tools: JSON schemas of functions the model may call.
            variables: More names for the template (``enable_thinking``, ...).

        Raises:
            RequestError: The template refused the messages (with its words) or failed on them.
        """
        names: dict[str, Any] = {**self._special_tokens, **(variables or {})}
        try:
            return self._template.render(
                **names,
                messages=[dict(message) for message in messages],
                tools=None if tools is None else [dict(tool) for tool in tools],
                documents=names.get("documents"),
                add_generation_prompt=add_generation_prompt,
            )
        except _RefusedByTemplate as exc:
            raise RequestError(
                f"The model's chat template refuses these messages: {exc}", field="messages"
            ) from exc
        except Exception as exc:  # a template is a third party's program
            raise RequestError(
                f"The model's chat template fails on these messages: {type(exc).__name__}: {exc}. "
                "Check that every message has the role and content the model expects.",
                field="messages",
            ) from exc


def resolve_chat_template(value: str) -> str:
    """The template's source from what a user gave: the name of a file, or the template itself.

    Raises:
        ConfigError: Neither: no such file, and nothing in it that a template would have.
    """
    if "{" not in value and "\n" not in value:
        path = Path(value).expanduser()
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(
                f"--chat-template {value!r} is neither a readable file ({exc}) nor a Jinja "
                "template. Name a file, or write the template itself."
            ) from exc
    return value


class _RefusedByTemplate(jinja2.TemplateError):
    """Raised by a template's own ``raise_exception``."""


class _GenerationBlock(Extension):
    """``{% generation %}...{% endgeneration %}``: marks the assistant's words for training."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, which jinja2's own filter makes and models never saw."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise _RefusedByTemplate(message)


def _strftime_now(layout: str) -> str:
    return datetime.datetime.now().strftime(layout)
