"""What the generated text must look like, as the client says it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from dougong.errors import RequestError
from dougong.messages.sampling_checks import check, check_length, tuple_of

KINDS = ("json_schema", "json_object", "regex", "choice", "grammar")
MAX_SCHEMA_CHARS = 64 * 1024
MAX_SCHEMA_DEPTH = 64
MAX_REGEX_CHARS = 8 * 1024
MAX_GRAMMAR_CHARS = 64 * 1024
MAX_CHOICES = 1024
MAX_CHOICE_CHARS = 16 * 1024  # of all choices together


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutput:
    """What the text must look like; exactly one field is given. Checked when made.

    Checked here: types, sizes, and that a schema is JSON. Whether a schema, regex or grammar can be
    compiled is found by `dougong.grammar`, before the request is computed.

    Attributes:
        json_schema: A JSON schema as JSON text; at most 65536 characters and 64 levels.
        json_object: Any JSON object.
        regex: A regular expression that the whole text matches, in the syntax of Rust's ``regex``
            crate (no look-around, no back references); at most 8192 characters.
        choice: The text is one of these, at most 1024, none of them empty, 16384 characters
            together.
        grammar: A context-free grammar in Lark's syntax; at most 65536 characters.

    Raises:
        RequestError: A value is wrong; the error names the field.
    """

    json_schema: str | None = None
    json_object: bool = False
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        """Make the choice a tuple, then check what was given."""
        if self.choice is not None:
            object.__setattr__(self, "choice", tuple_of("choice", self.choice, "strings"))
        if not isinstance(self.json_object, bool):
            raise RequestError(
                f"json_object={self.json_object!r} is of type {type(self.json_object).__name__}; "
                "it takes true or false.",
                field="json_object",
            )
        given = [kind for kind in KINDS if getattr(self, kind) not in (None, False)]
        if len(given) != 1:
            found = "none of them" if not given else " and ".join(given)
            raise RequestError(
                f"structured_output takes one of {', '.join(KINDS)} and has {found}; give one.",
                field="structured_output",
            )
        self._check_text("json_schema", MAX_SCHEMA_CHARS)
        self._check_text("regex", MAX_REGEX_CHARS)
        self._check_text("grammar", MAX_GRAMMAR_CHARS)
        self._check_schema()
        self._check_choice()

    @property
    def kind(self) -> str:
        """The field that was given."""
        return next(kind for kind in KINDS if getattr(self, kind) not in (None, False))

    def _check_text(self, field: str, max_chars: int) -> None:
        text = getattr(self, field)
        if text is None:
            return
        _check_string(field, text)
        if len(text) > max_chars:
            raise RequestError(
                f"{field} has {len(text)} characters; it takes at most {max_chars}.", field=field
            )

    def _check_schema(self) -> None:
        if self.json_schema is None:
            return
        if _depth(self.json_schema) > MAX_SCHEMA_DEPTH:
            raise RequestError(
                f"json_schema is nested deeper than {MAX_SCHEMA_DEPTH} levels; make it flatter, or "
                "name its parts under $defs.",
                field="json_schema",
            )
        try:
            schema = json.loads(self.json_schema, parse_constant=_refuse_constant)
        except ValueError as exc:
            raise RequestError(
                f"json_schema is not JSON ({exc}); send the schema as JSON text.",
                field="json_schema",
            ) from None
        if not isinstance(schema, dict):
            raise RequestError(
                f"json_schema is a JSON {type(schema).__name__}; give one that is an object.",
                field="json_schema",
            )

    def _check_choice(self) -> None:
        if self.choice is None:
            return
        check("choice", list(self.choice), bool(self.choice), "one string at least")
        check_length("choice", self.choice, MAX_CHOICES, "strings")
        for text in self.choice:
            _check_string("choice", text)
        num_chars = sum(map(len, self.choice))
        wanted = f"at most {MAX_CHOICE_CHARS} characters together"
        check("choice", f"{num_chars} characters", num_chars <= MAX_CHOICE_CHARS, wanted)


def _check_string(field: str, text: object) -> None:
    """A text that is not empty and can be written as UTF-8."""
    if not isinstance(text, str):
        raise RequestError(
            f"{field} holds a {type(text).__name__}; it takes text.",
            field=field,
        )
    if not text:
        raise RequestError(
            f"{field} holds an empty text; give one that says what to generate.", field=field
        )
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise RequestError(
            f"{field} holds a lone surrogate at character {exc.start}, which is no text; take it "
            "out.",
            field=field,
        ) from None


def _depth(text: str) -> int:
    """The deepest nesting of brackets outside strings; the parser itself recurses."""
    deepest = depth = 0
    in_string = is_escaped = False
    for char in text:
        if in_string:
            if is_escaped:
                is_escaped = False
            elif char == "\\":
                is_escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "}]":
            depth -= 1
    return deepest


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")
