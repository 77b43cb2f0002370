"""The OpenAPI document: FastAPI's, with the bodies that the routes read themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dougong.server.answers import ANSWERS
from dougong.server.body import WireModel
from dougong.server.lora import LoadLoRARequest, UnloadLoRARequest
from dougong.server.openai.chat import ChatRequest
from dougong.server.openai.completions import CompletionRequest
from dougong.server.openai.embeddings import EmbeddingRequest
from dougong.server.tokens import DetokenizeRequest, TokenizeRequest

BODIES: Mapping[str, type[WireModel]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
    "/v1/embeddings": EmbeddingRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
    "/v1/load_lora_adapter": LoadLoRARequest,
    "/v1/unload_lora_adapter": UnloadLoRARequest,
}
_PREFIX = "#/components/schemas/"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_REFUSALS = {
    "400": "The request is wrong; `param` names the field.",
    "401": "An API key is wanted.",
    "404": "There is no such model.",
    "503": "The engine is dead, or the server stops.",
}
_REFUSALS_OF_BODIES = {
    "403": "The server was not started to allow it.",
    "413": "The body is too large.",
    "415": "The body is not said to be JSON.",
    "429": "There is no room now.",
}
_EVENTS = {
    "schema": {
        "description": "Each event. Its data is JSON, and the last one's is [DONE].",
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "string"}},
    }
}
_OTHER_CONTENT: Mapping[str, Mapping[str, Any]] = {
    "/v1/completions": {"text/event-stream": _EVENTS},
    "/v1/chat/completions": {"text/event-stream": _EVENTS},
}
"""Route → what its answer may be, beside JSON."""


def with_bodies(document: dict[str, Any]) -> dict[str, Any]:
    """The document with bodies, answers, streams and refusals; changed in place."""
    _, schemas = msgspec.json.schema_components(BODIES.values(), ref_template=_PREFIX + "{name}")
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(schemas)
    components["Error"] = _ERROR
    for routes in document["paths"].values():
        for route in routes.values():
            route["responses"].pop("422", None)  # the framework's own refusal: none leaves here
            _add_refusals(route, _REFUSALS)
    for name in ("HTTPValidationError", "ValidationError"):
        components.pop(name, None)
    for (method, path), answer in ANSWERS.items():
        whole = document["paths"][path][method]["responses"]["200"]
        whole["content"]["application/json"] = {"schema": answer}
    for path, kind in BODIES.items():
        route = document["paths"][path]["post"]
        schema = {"$ref": _PREFIX + kind.__name__}
        route["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
        _add_refusals(route, _REFUSALS_OF_BODIES)
        route["responses"]["200"]["content"].update(_OTHER_CONTENT.get(path, {}))
    return document


def _add_refusals(route: dict[str, Any], told: Mapping[str, str]) -> None:
    """A route that says more of a status of its own keeps that."""
    refused = {"application/json": {"schema": {"$ref": _PREFIX + "Error"}}}
    for status, text in told.items():
        route["responses"].setdefault(status, {"description": text}).setdefault("content", refused)
