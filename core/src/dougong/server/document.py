"""The OpenAPI document: FastAPI's, with the bodies that the routes read themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dougong.server.body import WireModel
from dougong.server.openai.chat import ChatRequest
from dougong.server.openai.completions import CompletionRequest
from dougong.server.tokens import DetokenizeRequest, TokenizeRequest

BODIES: Mapping[str, type[WireModel]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
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
    "413": "The body is too large.",
    "415": "The body is not said to be JSON.",
    "429": "There is no room now.",
    "503": "The engine is dead, or the server stops.",
}


def with_bodies(document: dict[str, Any]) -> dict[str, Any]:
    """The document with request bodies and refusals; changed in place."""
    _, schemas = msgspec.json.schema_components(BODIES.values(), ref_template=_PREFIX + "{name}")
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(schemas)
    components["Error"] = _ERROR
    refused = {"application/json": {"schema": {"$ref": _PREFIX + "Error"}}}
    for path, kind in BODIES.items():
        route = document["paths"][path]["post"]
        schema = {"$ref": _PREFIX + kind.__name__}
        route["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
        for status, text in _REFUSALS.items():
            route["responses"][status] = {"description": text, "content": refused}
    return document
