"""What whole answers look like, for the OpenAPI document: what clients may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]


def _object(**fields: Schema) -> Schema:
    """Has all of these fields, and may have others."""
    return {"type": "object", "required": list(fields), "properties": fields}


def _several(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _always(value: str) -> Schema:
    return {"const": value}


_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_ENDED: Schema = {"enum": ["stop", "length", "tool_calls"]}
_LOGPROBS: Schema = {"type": ["object", "null"]}
_PROMPT_USAGE = {"prompt_tokens": _COUNT, "total_tokens": _COUNT}
_USAGE = _object(**_PROMPT_USAGE, completion_tokens=_COUNT)
_HEAD = {"id": _TEXT, "created": _COUNT, "model": _TEXT, "usage": _USAGE}
_CHOICE = {"index": _COUNT, "finish_reason": _ENDED, "logprobs": _LOGPROBS}
_MESSAGE = _object(role=_always("assistant"), content=_TEXT_OR_NULL)
_MODEL = _object(id=_TEXT, object=_always("model"), created=_COUNT, owned_by=_TEXT)
_VECTOR: Schema = {"anyOf": [_several(_NUMBER), _TEXT]}  # the text is base64

ANSWERS: Mapping[tuple[str, str], Schema] = {
    ("post", "/v1/completions"): _object(
        **_HEAD,
        object=_always("text_completion"),
        choices=_several(_object(**_CHOICE, text=_TEXT)),
    ),
    ("post", "/v1/chat/completions"): _object(
        **_HEAD,
        object=_always("chat.completion"),
        choices=_several(_object(**_CHOICE, message=_MESSAGE)),
    ),
    ("post", "/v1/embeddings"): _object(
        object=_always("list"),
        data=_several(_object(object=_always("embedding"), index=_COUNT, embedding=_VECTOR)),
        model=_TEXT,
        usage=_object(**_PROMPT_USAGE),
    ),
    ("post", "/tokenize"): _object(tokens=_several(_COUNT), count=_COUNT, max_model_len=_COUNT),
    ("post", "/detokenize"): _object(prompt=_TEXT),
    ("post", "/v1/load_lora_adapter"): _MODEL,
    ("post", "/v1/unload_lora_adapter"): _object(id=_TEXT, deleted={"const": True}),
    ("get", "/v1/models"): _object(object=_always("list"), data=_several(_MODEL)),
    ("get", "/v1/models/{model}"): _MODEL,
    ("get", "/health"): _object(
        status={"enum": ["ok", "stopping"]}, engine_answered_s_ago={"type": "number", "minimum": 0}
    ),
    ("get", "/version"): _object(version=_TEXT, contract=_TEXT),
    ("get", "/plan"): {"type": "object"},
    ("get", "/status.json"): {"type": "object"},
}
"""Method and route → its answer with status 200."""
