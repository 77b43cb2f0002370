"""Adapters over HTTP: names of models, and routes that are shut unless they were asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.server.conftest import Served

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


@pytest.fixture
def open_served(serve: Callable[..., Served]) -> Served:
    return serve(allow_lora_updates=True)


async def load(served: Served, name: str = "poet", path: str = "/adapters/poet") -> None:
    answer = await served.post(LOAD, lora_name=name, lora_path=path)
    assert answer.status_code == 200, answer.text
    assert answer.json()["id"] == name


async def test_an_adapter_is_a_model_of_its_own_with_a_parent(open_served: Served) -> None:
    await load(open_served)
    assert open_served.engine.adapters == {"poet": "/adapters/poet"}
    listed = (await open_served.client.get("/v1/models")).json()["data"]
    assert [(one["id"], one.get("parent")) for one in listed] == [
        ("tiny", None), ("also/tiny", None), ("poet", "tiny")
    ]  # fmt: skip
    shown = (await open_served.client.get("/v1/models/poet")).json()
    assert shown["parent"] == "tiny"


async def test_a_request_uses_the_adapter_that_its_model_names(open_served: Served) -> None:
    await load(open_served)
    messages = [{"role": "user", "content": "A"}]
    for model, lora in (("poet", "poet"), ("tiny", None), ("also/tiny", None)):
        whole = await open_served.post("/v1/completions", prompt="A", model=model)
        chat = await open_served.post("/v1/chat/completions", messages=messages, model=model)
        assert whole.json()["model"] == chat.json()["model"] == model
        assert open_served.engine.seen_loras[-2:] == [lora, lora]
    streamed = await open_served.post("/v1/completions", prompt="A", model="poet", stream=True)
    assert '"model":"poet"' in streamed.text.replace(" ", "")
    assert open_served.engine.seen_loras[-1] == "poet"


async def test_an_unloaded_adapter_is_no_model_any_more(open_served: Served) -> None:
    await load(open_served)
    answer = await open_served.post(UNLOAD, lora_name="poet")
    assert answer.json() == {"id": "poet", "object": "model", "deleted": True}
    for gone in (
        await open_served.post("/v1/completions", prompt="A", model="poet"),
        await open_served.client.get("/v1/models/poet"),
        await open_served.post(UNLOAD, lora_name="poet"),
    ):
        assert gone.status_code == 404
        assert gone.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_without_the_option_nothing_is_loaded_and_the_option_is_named(
    served: Served, path: str
) -> None:
    answer = await served.post(path, lora_name="poet", lora_path="/adapters/poet")
    assert answer.status_code == 403
    assert "--allow-lora-updates" in answer.json()["error"]["message"]
    assert served.engine.adapters == {}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"lora_name": "poet"}, "lora_path"),
        ({"lora_path": "/x"}, "lora_name"),
        ({"lora_name": 3, "lora_path": "/x"}, "lora_name"),
        ({"lora_name": "poet", "lora_path": " "}, "lora_path"),
        ({"lora_name": "poet", "lora_path": "a\0b"}, "lora_path"),
        ({"lora_name": "tiny", "lora_path": "/x"}, "lora_name"),
        ({"lora_name": "poet", "lora_path": "/x", "more": 1}, "more"),
    ],
)
async def test_a_wrong_request_is_a_400_that_names_the_field(
    open_served: Served, body: dict[str, object], field: str
) -> None:
    answer = await open_served.post(LOAD, **body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert open_served.engine.adapters == {}


async def test_the_same_name_twice_is_refused(open_served: Served) -> None:
    await load(open_served)
    answer = await open_served.post(LOAD, lora_name="poet", lora_path="/other")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "lora_name"
