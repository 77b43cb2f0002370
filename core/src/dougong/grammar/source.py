"""A client's wish in the library's own form."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dougong.messages import StructuredOutput

# Between the parts of JSON: one space, or one line break with an indent. Without a bound a model
# that likes spaces would fill its whole answer with them.
_WHITESPACE = r"( |\r?\n[ \t]{0,32})"
_ANY_OBJECT = '{"type":"object"}'


def library_grammar(wish: StructuredOutput) -> str:
    """The grammar that the library compiles; not checked.

    Raises:
        ValueError: The library cannot read the schema at all.
    """
    import llguidance

    matcher = llguidance.LLMatcher
    if wish.regex is not None:
        return matcher.grammar_from_lark(_whole_text(wish.regex))
    if wish.choice is not None:
        return matcher.grammar_from_lark(_one_of(wish.choice))
    if wish.grammar is not None:
        return matcher.grammar_from_lark(wish.grammar)
    schema = wish.json_schema if wish.json_schema is not None else _ANY_OBJECT
    return matcher.grammar_from_json_schema(
        schema, overrides={"whitespace_flexible": True, "whitespace_pattern": _WHITESPACE}
    )


def _whole_text(regex: str) -> str:
    r"""A text that matches as a whole. ``\d`` means 0 to 9: a model that may would draw digits of
    other scripts."""
    import llguidance

    return f"start: /{llguidance.regex_to_lark(regex, 'd')}/"


def _one_of(texts: Sequence[str]) -> str:
    return "start: " + " | ".join(json.dumps(text) for text in texts)
