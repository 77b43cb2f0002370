from __future__ import annotations

import json
import re

import httpx
import pytest

from dougong.server.document import BODIES
from tests.unit.server.conftest import Served


async def document(served: Served) -> httpx.Response:
    return await served.client.get("/openapi.json")


async def test_every_route_with_a_body_says_what_it_takes(served: Served) -> None:
    found = (await document(served)).json()
    posts = {path for path, methods in found["paths"].items() if "post" in methods}
    assert posts == set(BODIES)
    schemas = found["components"]["schemas"]
    assert "messages" in schemas["ChatRequest"]["required"]
    assert schemas["CompletionRequest"]["additionalProperties"] is False


async def test_every_reference_leads_somewhere(served: Served) -> None:
    answer = await document(served)
    schemas = answer.json()["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', answer.text))
    assert references
    assert references <= set(schemas)
    assert "$defs" not in json.dumps(schemas)


async def test_every_route_says_which_refusals_it_has_and_none_that_it_has_not(
    served: Served,
) -> None:
    for path, methods in (await document(served)).json()["paths"].items():
        for method, route in methods.items():
            responses = route["responses"]
            assert {"200", "400", "401", "404", "503"} <= set(responses), path
            assert "422" not in responses
            assert ("413" in responses) == (method == "post")
            refusals = [one for status, one in responses.items() if status != "200"]
            assert all("Error" in json.dumps(one["content"]) for one in refusals)


async def test_every_route_says_what_it_answers(served: Served) -> None:
    for path, methods in (await document(served)).json()["paths"].items():
        for method, route in methods.items():
            for content in route["responses"]["200"]["content"].values():
                assert content["schema"].get("type"), (method, path)


async def test_answers_that_are_not_json_are_announced(served: Served) -> None:
    paths = (await document(served)).json()["paths"]
    for path in ("/v1/completions", "/v1/chat/completions"):
        content = paths[path]["post"]["responses"]["200"]["content"]
        assert set(content) == {"application/json", "text/event-stream"}
    assert set(paths["/metrics"]["get"]["responses"]["200"]["content"]) == {"text/plain"}


async def test_asking_twice_changes_nothing(served: Served) -> None:
    assert (await document(served)).text == (await document(served)).text


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_no_page_fetches_scripts_from_elsewhere(served: Served, path: str) -> None:
    assert (await served.client.get(path)).status_code == 404
