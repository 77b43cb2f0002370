"""What a client may ask of the text's form; each refusal names its field."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from dougong.errors import RequestError
from dougong.messages import SamplingParams, StructuredOutput

SCHEMA = '{"type":"object"}'


@pytest.mark.parametrize(
    "fields",
    [
        {"json_schema": SCHEMA},
        {"json_schema": json.dumps({"const": "]]}}" + '"' * 3 + "[" * 500})},
        {"json_object": True},
        {"regex": "a+"},
        {"choice": ["yes", "no"]},
        {"grammar": 'start: "a"'},
    ],
)
def test_each_form_is_taken_and_named(fields: dict[str, Any]) -> None:
    wish = StructuredOutput(**fields)
    assert {wish.kind} == set(fields)
    assert pickle.loads(pickle.dumps(wish)) == wish == copy.deepcopy(wish)
    assert hash(wish) == hash(StructuredOutput(**fields))


def test_a_choice_becomes_a_tuple() -> None:
    assert StructuredOutput(choice=["yes", "no"]).choice == ("yes", "no")


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("structured_output", {}),
        ("structured_output", {"json_object": False}),
        ("structured_output", {"regex": "a", "json_object": True}),
        ("structured_output", {"regex": "a", "choice": []}),
        ("json_schema", {"json_schema": {"type": "object"}}),
        ("json_schema", {"json_schema": "{"}),
        ("json_schema", {"json_schema": "[1]"}),
        ("json_schema", {"json_schema": "true"}),
        ("json_schema", {"json_schema": '"text"'}),
        ("json_schema", {"json_schema": '{"maximum": NaN}'}),
        ("json_schema", {"json_schema": '{"maximum": -Infinity}'}),
        ("json_schema", {"json_schema": '{"a":' * 65 + "1" + "}" * 65}),
        ("json_schema", {"json_schema": "[" * 60_000}),
        ("json_schema", {"json_schema": json.dumps({"description": "x" * 70_000})}),
        ("json_object", {"json_object": 1}),
        ("json_object", {"json_object": None}),
        ("regex", {"regex": 7}),
        ("regex", {"regex": ""}),
        ("regex", {"regex": "a" * 8193}),
        ("regex", {"regex": "\ud800"}),
        ("choice", {"choice": "yes"}),
        ("choice", {"choice": []}),
        ("choice", {"choice": ["yes", ""]}),
        ("choice", {"choice": ["yes", 1]}),
        ("choice", {"choice": ["yes", "\udfff"]}),
        ("choice", {"choice": ["x"] * 1025}),
        ("choice", {"choice": ["x" * 9000, "y" * 9000]}),
        ("grammar", {"grammar": ""}),
        ("grammar", {"grammar": "x" * 65_537}),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        StructuredOutput(**fields)
    assert caught.value.field == field


def test_a_refusal_is_short_however_long_the_value() -> None:
    with pytest.raises(RequestError) as caught:
        StructuredOutput(choice=["x" * 9000, "y" * 9000])
    assert len(str(caught.value)) < 200


def test_it_is_a_sampling_parameter() -> None:
    wish = StructuredOutput(regex="a+")
    params = SamplingParams(structured_output=wish, min_tokens=2, stop=("b",), stop_token_ids=(3,))
    assert params.structured_output is wish


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("structured_output", {"regex": "a+"}),
        ("structured_output", "a+"),
        ("ignore_eos", True),
        ("allowed_token_ids", (1, 2)),
        ("bad_words", ("a",)),
        ("bad_token_ids", ((1,),)),
    ],
)
def test_what_could_leave_no_token_does_not_go_with_it(field: str, value: Any) -> None:
    fields = {"structured_output": StructuredOutput(regex="a+"), field: value}
    with pytest.raises(RequestError) as caught:
        SamplingParams(**fields)
    assert caught.value.field == field
