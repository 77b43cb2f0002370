from __future__ import annotations

import json
from typing import Any

import pytest

from dougong.errors import RequestError
from dougong.messages import StructuredOutput
from tests.unit.server.conftest import Served

ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "A"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
}
SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}, "required": ["b"]}


def form(kind: str, **more: Any) -> dict[str, Any]:
    return {"response_format": {"type": kind, **more}}


def more(**kinds: Any) -> dict[str, Any]:
    return {"structured_outputs": kinds}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (form("text"), None),
        (form("json_object"), StructuredOutput(json_object=True)),
        (form("json_schema", json_schema={"name": "x", "strict": True, "schema": SCHEMA}),
         StructuredOutput(json_schema=json.dumps(SCHEMA))),
        (form("json_schema", json_schema={"name": "x"}), StructuredOutput(json_object=True)),
        (more(json=SCHEMA), StructuredOutput(json_schema=json.dumps(SCHEMA))),
        (more(json=json.dumps(SCHEMA)), StructuredOutput(json_schema=json.dumps(SCHEMA))),
        (more(json_object=True), StructuredOutput(json_object=True)),
        (more(regex="a+", json_object=False), StructuredOutput(regex="a+")),
        (more(choice=["yes", "no"]), StructuredOutput(choice=("yes", "no"))),
        (more(grammar='start: "x"'), StructuredOutput(grammar='start: "x"')),
        ({**form("text"), **more(regex="a")}, StructuredOutput(regex="a")),
    ],
    ids=str,
)  # fmt: skip
async def test_every_spelling_reaches_the_engine(
    served: Served, route: str, asked: dict[str, Any], expected: StructuredOutput | None
) -> None:
    answer = await served.post(route, **ROUTES[route], **asked)
    assert answer.status_code == 200, answer.text
    assert [params.structured_output for params in served.engine.seen] == [expected]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (form("xml"), "response_format.type"),
        (form("json_schema"), "response_format.json_schema"),
        (form("json_schema", json_schema={"schema": SCHEMA}), "response_format.json_schema.name"),
        (form("json_schema", json_schema={"name": "x", "schema": 1}),
         "response_format.json_schema.schema"),
        ({"response_format": "json"}, "response_format"),
        (more(), "structured_outputs"),
        (more(regex="a", choice=["b"]), "structured_outputs"),
        (more(regex=""), "structured_outputs.regex"),
        (more(choice=[]), "structured_outputs.choice"),
        (more(json="{"), "structured_outputs.json"),
        (more(grammar="x" * 99999), "structured_outputs.grammar"),
        (more(xml="x"), "structured_outputs.xml"),
        ({**form("json_object"), **more(regex="a")}, "structured_outputs"),
        ({**form("json_object"), "ignore_eos": True}, "ignore_eos"),
        ({**more(regex="a"), "allowed_token_ids": [5]}, "allowed_token_ids"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
async def test_a_wish_that_is_wrong_is_refused_by_the_clients_own_name_for_it(
    served: Served, route: str, asked: dict[str, Any], field: str
) -> None:
    answer = await served.post(route, **ROUTES[route], **asked)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
    assert not served.engine.seen


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("asked", "raised", "field"),
    [
        (form("json_schema", json_schema={"name": "x", "schema": {}}), "json_schema",
         "response_format"),
        (more(json={}), "json_schema", "structured_outputs.json"),
        (more(regex="("), "regex", "structured_outputs.regex"),
        (more(regex="("), "structured_output", "structured_outputs"),
        (more(regex="("), "prompt", "prompt"),
    ],
    ids=str,
)  # fmt: skip
async def test_what_the_engine_refuses_has_the_clients_own_name_too(
    served: Served, is_stream: bool, asked: dict[str, Any], raised: str, field: str
) -> None:
    served.engine.death = RequestError("It cannot be compiled.", field=raised)
    answer = await served.post("/v1/completions", prompt="A", stream=is_stream, **asked)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] | {"type": ""} == {
        "message": "It cannot be compiled.", "type": "", "param": field, "code": None,
    }  # fmt: skip
