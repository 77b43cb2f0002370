from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.server.conftest import Served

ROUTES = {
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/models",
    "/v1/models/{model}",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/tokenize",
    "/detokenize",
    "/health",
    "/metrics",
    "/plan",
    "/status.json",
    "/version",
}


async def test_every_route_is_there_and_is_described(served: Served) -> None:
    document = (await served.client.get("/openapi.json")).json()
    assert set(document["paths"]) == ROUTES
    for path, methods in document["paths"].items():
        assert all(method["description"] for method in methods.values()), path


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/nothing"])
async def test_every_answer_has_a_request_id_whatever_guards_it(
    serve: Callable[..., Served], path: str
) -> None:
    served = serve(api_keys=("k",), cors_origins=("https://page.example",))
    assert (await served.client.get(path)).headers["x-request-id"]
