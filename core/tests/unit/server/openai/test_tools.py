from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dougong.errors import RequestError
from dougong.server.openai.tool_formats import ToolSupport
from dougong.server.openai.tools import Tool, ToolChoice, ToolUse, tool_use

SUPPORT = ToolSupport("{{ tools }}<tool_call>", None)
CITY = {"$ref": "#/$defs/City"}
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": CITY, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"City": {"type": "string", "enum": ["Rome", "Oslo"]}},
}
TIME: dict[str, Any] = {
    "type": "object",
    "properties": {"zone": {"$ref": "#/definitions/City"}},
    "required": ["zone"],
    "additionalProperties": False,
    "definitions": {"City": {"type": "integer"}},
}


def tools(**schemas: Any) -> list[Tool]:
    given = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
        for name, schema in schemas.items()
    ]
    return msgspec.convert(given, list[Tool])


def use(choice: Any = None, *, is_parallel: bool = True, **schemas: Any) -> ToolUse:
    made: ToolChoice | None = None if choice is None else msgspec.convert(choice, ToolChoice)
    return tool_use(tools(**schemas), made, is_parallel=is_parallel, support=SUPPORT)


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_a_template_sees_a_tool_without_what_is_not_the_models_business() -> None:
    assert use(f=WEATHER).shown == [
        {"type": "function", "function": {"name": "f", "parameters": WEATHER}}
    ]
    (tool,) = use(f=None).shown or [{}]
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("choice", [None, "auto"])
def test_a_model_that_may_call_is_read_in_its_own_form(choice: str | None) -> None:
    found = use(choice, f=WEATHER)
    assert found.structured is None
    assert found.format is not None and found.format.name == "hermes"
    assert found.reader() is not None


def test_a_model_that_may_not_call_hears_of_no_tools() -> None:
    assert use("none", f=WEATHER) == ToolUse()
    assert not use("none", f=WEATHER).is_used


def test_a_named_tool_is_held_to_its_own_schema() -> None:
    found = use(named("g"), f=WEATHER, g=TIME)
    assert found.only == "g"
    assert found.structured is not None and found.structured.json_schema is not None
    assert json.loads(found.structured.json_schema) == TIME
    assert found.reader() is None


def call_of(name: str, arguments: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def calls_schema(found: ToolUse) -> dict[str, Any]:
    assert found.structured is not None and found.structured.json_schema is not None
    schema: dict[str, Any] = json.loads(found.structured.json_schema)
    return schema


def test_a_call_that_must_be_made_is_one_of_a_tool_with_its_own_definitions() -> None:
    weather = {key: value for key, value in WEATHER.items() if key != "$defs"}
    weather["properties"] = {**WEATHER["properties"], "city": {"$ref": "#/$defs/tool0.City"}}
    time = {key: value for key, value in TIME.items() if key != "definitions"}
    time["properties"] = {"zone": {"$ref": "#/$defs/tool1.City"}}
    found = use("required", f=WEATHER, g=TIME)
    assert found.has_list and found.reader() is not None
    assert calls_schema(found) == {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [call_of("f", weather), call_of("g", time)]},
        "$defs": {
            "tool0.City": {"type": "string", "enum": ["Rome", "Oslo"]},
            "tool1.City": {"type": "integer"},
        },
    }


def test_a_property_named_like_a_keyword_stays() -> None:
    schema = {"type": "object", "properties": {"$defs": {"type": "string"}}}
    (kind,) = calls_schema(use("required", f=schema))["items"]["anyOf"]
    assert kind == call_of("f", schema)


def test_a_reference_that_would_mean_another_thing_among_others_is_refused() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    with pytest.raises(RequestError, match="'#'") as caught:
        use("required", f=tree)
    assert caught.value.field == "tools"
    assert use(named("f"), f=tree).structured is not None


def test_one_call_at_a_time_is_one_in_the_schema_too() -> None:
    found = use("required", is_parallel=False, f=WEATHER)
    assert found.is_single
    assert calls_schema(found)["maxItems"] == 1
    assert "maxItems" not in calls_schema(use("required", f=WEATHER))


@pytest.mark.parametrize(
    ("choice", "names", "field"),
    [
        ("required", (), "tool_choice"),
        (named("f"), (), "tool_choice"),
        (named("x"), ("f",), "tool_choice"),
    ],
    ids=str,
)
def test_a_choice_that_does_not_fit_the_tools_is_refused(
    choice: Any, names: tuple[str, ...], field: str
) -> None:
    with pytest.raises(RequestError) as caught:
        tool_use(
            tools(**dict.fromkeys(names, WEATHER)),
            msgspec.convert(choice, ToolChoice),
            is_parallel=True,
            support=SUPPORT,
        )
    assert caught.value.field == field


def test_two_tools_of_one_name_are_refused() -> None:
    twice = [*tools(f=WEATHER), *tools(f=TIME)]
    with pytest.raises(RequestError, match="two functions named 'f'") as caught:
        tool_use(twice, None, is_parallel=True, support=SUPPORT)
    assert caught.value.field == "tools.1.function.name"
