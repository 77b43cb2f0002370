"""What the text must look like, in the two spellings that clients know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec

from dougong.errors import RequestError
from dougong.messages import StructuredOutput
from dougong.server.body import WireModel


class TextFormat(WireModel, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Any text."""


class JsonFormat(WireModel, frozen=True, kw_only=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchema(WireModel, frozen=True, kw_only=True):
    """A schema with OpenAI's labels. It is obeyed to the letter, whatever ``strict`` says."""

    name: Annotated[str, msgspec.Meta(max_length=256)]
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class SchemaFormat(WireModel, frozen=True, kw_only=True, tag_field="type", tag="json_schema"):
    """JSON that fits a schema."""

    json_schema: JsonSchema


ResponseFormat = TextFormat | JsonFormat | SchemaFormat


class StructuredOutputs(WireModel, frozen=True, kw_only=True):
    """More kinds than OpenAI has; exactly one of them."""

    json: dict[str, Any] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Annotated[list[str], msgspec.Meta(max_length=8192)] | None = None
    grammar: str | None = None


_SPELT_HERE: Mapping[str, str] = {"json_schema": "json", "structured_output": ""}
KINDS = ("json_schema", "json_object", "regex", "choice", "grammar", "structured_output")
"""Fields that the engine's refusals of such a wish name."""


def structured_output(
    form: ResponseFormat | None, more: StructuredOutputs | None
) -> tuple[StructuredOutput | None, Mapping[str, str]]:
    """What both fields say together.

    Returns:
        The wish, and how the client spelt the fields that a refusal of it names.

    Raises:
        RequestError: It is wrong in itself, or both fields say something.
    """
    has_form = form is not None and not isinstance(form, TextFormat)
    if has_form and more is not None:
        raise RequestError(
            "response_format and structured_outputs both say what the text must look like; give "
            "one of them.",
            field="structured_outputs",
        )
    if more is not None:
        spelling = {
            kind: f"structured_outputs.{_SPELT_HERE.get(kind, kind)}".rstrip(".") for kind in KINDS
        }
        with spelt(spelling):
            return _of_more(more), spelling
    if not has_form:
        return None, {}
    spelling = dict.fromkeys(KINDS, "response_format")
    with spelt(spelling):
        return _of_form(form), spelling


@contextmanager
def spelt(spelling: Mapping[str, str]) -> Iterator[None]:
    """Let refusals name fields as the client knows them."""
    try:
        yield
    except RequestError as error:
        if error.field is None or error.field not in spelling:
            raise
        raise RequestError(str(error), field=spelling[error.field]) from error


def _of_form(form: ResponseFormat | None) -> StructuredOutput:
    if isinstance(form, SchemaFormat) and form.json_schema.schema is not None:
        return StructuredOutput(json_schema=_text(form.json_schema.schema))
    return StructuredOutput(json_object=True)


def _of_more(more: StructuredOutputs) -> StructuredOutput:
    return StructuredOutput(
        json_schema=None if more.json is None else _text(more.json),
        json_object=bool(more.json_object),
        regex=more.regex,
        choice=more.choice,
        grammar=more.grammar,
    )


def _text(schema: dict[str, Any] | str) -> str:
    if isinstance(schema, str):
        return schema
    try:
        return json.dumps(schema)
    except RecursionError:
        raise RequestError(
            "json_schema is nested too deep; make it flatter.", field="json_schema"
        ) from None
