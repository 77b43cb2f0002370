"""``POST /v1/chat/completions``: answer conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from dougong.errors import RequestError
from dougong.messages import StructuredOutput
from dougong.server.body import read_body
from dougong.server.openai.answering import Work, answer_stream, answer_whole
from dougong.server.openai.chat_answer import ChatAnswer
from dougong.server.openai.messages import Messages, plain_messages
from dougong.server.openai.sampling import Count, Positive, SamplingFields, sampling_params
from dougong.server.openai.structured import KINDS, spelt, structured_output
from dougong.server.openai.tools import ToolChoice, Tools, ToolUse, tool_use
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["OpenAI"])

_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
}
"""Fields of OpenAI's → values under which the answer is the same."""
_SPELT_IN_TOOLS = dict.fromkeys(KINDS, "tools")
_TEMPLATE_NAMES = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


class ChatRequest(SamplingFields, frozen=True, kw_only=True):
    """A conversation, to be answered up to the model's length unless told otherwise."""

    messages: Messages
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Count | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    web_search_options: Any = None
    service_tier: Any = None
    store: Any = None


@router.post("/v1/chat/completions", response_model=None)
async def chat(request: Request, serving: Annotated[Serving, Depends(serving_of)]) -> Response:
    """Answer a conversation ``n`` times."""
    asked = await read_body(request, ChatRequest, serving.settings.max_body_bytes)
    model = serving.check_model(asked.model)
    structured, spelling = structured_output(asked.response_format, asked.structured_outputs)
    tools = _tools(asked, serving)
    if tools.is_used:
        structured, spelling = _beside_tools(structured, tools), _SPELT_IN_TOOLS
    params = sampling_params(
        asked,
        neutral=_NEUTRAL,
        max_tokens=_max_tokens(asked),
        logprobs=_logprobs(asked),
        prompt_logprobs=asked.prompt_logprobs,
        structured_output=structured,
    )
    _check_variables(asked)
    ids = await serving.text.encode_chat(
        plain_messages(asked.messages), tools=tools.shown, variables=asked.chat_template_kwargs
    )
    serving.check_prompt("messages", ids)
    answer = ChatAnswer(
        serving,
        model.name,
        n=params.n,
        num_top=params.logprobs or 0,
        num_prompt_top=asked.prompt_logprobs,
        tools=tools,
    )
    work = Work(
        route="chat",
        prompts=[ids],
        params=params,
        has_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        whole=answer.whole,
        chunks=answer.chunks,
        bare_chunk=answer.bare_chunk,
        lora=model.lora,
        spelling=spelling,
    )
    return await (answer_stream if asked.stream else answer_whole)(request, serving, work)


def _tools(asked: ChatRequest, serving: Serving) -> ToolUse:
    with spelt(_SPELT_IN_TOOLS):
        return tool_use(
            asked.tools,
            asked.tool_choice,
            is_parallel=asked.parallel_tool_calls is not False,
            support=serving.tools,
        )


def _beside_tools(structured: StructuredOutput | None, tools: ToolUse) -> StructuredOutput | None:
    if structured is not None:
        raise RequestError(
            "response_format and structured_outputs do not go with tools that the model may call: "
            "a call is of a form of its own. Leave one of them out, or set tool_choice to 'none'.",
            field="tools",
        )
    return tools.structured


def _max_tokens(asked: ChatRequest) -> int | None:
    old, new = asked.max_tokens, asked.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise RequestError(
            f"max_tokens={old} and max_completion_tokens={new} say different things. "
            "Give one of them.",
            field="max_completion_tokens",
        )
    return old if new is None else new


def _check_variables(asked: ChatRequest) -> None:
    if taken := sorted(_TEMPLATE_NAMES & set(asked.chat_template_kwargs or ())):
        raise RequestError(
            f"chat_template_kwargs cannot set {', '.join(taken)}: the server does.",
            field="chat_template_kwargs",
        )


def _logprobs(asked: ChatRequest) -> int | None:
    if asked.logprobs:
        return asked.top_logprobs or 0
    if asked.top_logprobs:
        raise RequestError(
            "top_logprobs goes with logprobs=true; set that, or leave it out.",
            field="top_logprobs",
        )
    return None
