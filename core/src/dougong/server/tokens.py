"""``POST /tokenize`` and ``POST /detokenize``: what the model reads, and what its tokens spell."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request

from dougong.errors import RequestError
from dougong.server.body import WireModel, read_body
from dougong.server.openai.messages import Messages, plain_messages
from dougong.server.openai.tools import Tools, shown_tool
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["tokens"])
Served = Annotated[Serving, Depends(serving_of)]


class TokenizeRequest(WireModel, frozen=True, kw_only=True):
    """A text or a conversation, one of the two."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None


class DetokenizeRequest(WireModel, frozen=True, kw_only=True):
    """Token ids."""

    model: str | None = None
    tokens: list[int]


@router.post("/tokenize")
async def tokenize(request: Request, serving: Served) -> dict[str, Any]:
    """Token ids of a text or of a conversation in the model's chat template."""
    asked = await read_body(request, TokenizeRequest, serving.settings.max_body_bytes)
    serving.check_model(asked.model)
    tokens = await _encode(serving, asked)
    return {"tokens": tokens, "count": len(tokens), "max_model_len": serving.max_model_len}


@router.post("/detokenize")
async def detokenize(request: Request, serving: Served) -> dict[str, str]:
    """Text of token ids, special tokens included."""
    asked = await read_body(request, DetokenizeRequest, serving.settings.max_body_bytes)
    serving.check_model(asked.model)
    return {"prompt": await serving.text.decode(asked.tokens)}


async def _encode(serving: Serving, asked: TokenizeRequest) -> list[int]:
    if (asked.prompt is None) == (asked.messages is None):
        raise RequestError("Give prompt or messages, one of the two.", field="prompt")
    if asked.prompt is not None:
        if asked.tools:
            raise RequestError("tools go with messages; leave them out.", field="tools")
        if asked.add_generation_prompt is not None:
            raise RequestError(
                "add_generation_prompt goes with messages; a prompt is taken as it is.",
                field="add_generation_prompt",
            )
        has_special = asked.add_special_tokens is not False
        return await serving.text.encode(asked.prompt, add_special_tokens=has_special)
    assert asked.messages is not None
    if asked.add_special_tokens is not None:
        raise RequestError(
            "add_special_tokens goes with prompt; of messages the template decides.",
            field="add_special_tokens",
        )
    if asked.tools:
        serving.tools.check_template()
    return await serving.text.encode_chat(
        plain_messages(asked.messages),
        add_generation_prompt=asked.add_generation_prompt is not False,
        tools=[shown_tool(tool) for tool in asked.tools] if asked.tools else None,
    )
