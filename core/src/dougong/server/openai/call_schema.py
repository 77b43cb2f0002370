"""The JSON schema of calls, from those of the tools' arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dougong.errors import RequestError


def calls_schema(tools: Mapping[str, Mapping[str, Any]], *, is_parallel: bool) -> dict[str, Any]:
    """The schema of a list with one call at least.

    ``$defs`` of a tool's schema are moved to the top, under names of their own, where its
    references find them.

    Args:
        tools: Name → schema of the arguments.
        is_parallel: There may be more calls than one.

    Raises:
        RequestError: A schema refers to something that is not under its ``$defs``.
    """
    definitions: dict[str, Any] = {}
    kinds = []
    for index, (name, parameters) in enumerate(tools.items()):
        schema = _with_definitions_at(f"tool{index}.", parameters, definitions)
        properties = {"name": {"const": name}, "arguments": schema}
        kinds.append(
            {
                "type": "object",
                "properties": properties,
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    calls: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": kinds}}
    if not is_parallel:
        calls["maxItems"] = 1
    return {**calls, "$defs": definitions} if definitions else calls


def _with_definitions_at(prefix: str, schema: Mapping[str, Any], moved: dict[str, Any]) -> Any:
    own = {key: schema[key] for key in ("$defs", "definitions") if key in schema}

    def rewritten(value: Any) -> Any:
        if isinstance(value, list):
            return [rewritten(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {
            key: _moved_reference(one, prefix)
            if key == "$ref" and isinstance(one, str)
            else rewritten(one)
            for key, one in value.items()
        }

    for definitions in own.values():
        if isinstance(definitions, dict):
            moved |= {f"{prefix}{name}": rewritten(one) for name, one in definitions.items()}
    return rewritten({key: one for key, one in schema.items() if key not in own})


def _moved_reference(reference: str, prefix: str) -> str:
    for place in ("#/$defs/", "#/definitions/"):
        if reference.startswith(place):
            return f"#/$defs/{prefix}{reference.removeprefix(place)}"
    raise RequestError(
        f"A tool's parameters have the reference {reference[:200]!r}, which is followed only with "
        "tool_choice 'auto' or the tool's own name. Put what it means under $defs.",
        field="tools",
    )
