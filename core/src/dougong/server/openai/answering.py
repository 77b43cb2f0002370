"""How both routes answer: whole, or as a stream whose first event is awaited.

The first event is awaited before the status is sent, so that a request which is refused or fails
before it has any text gets the status of its error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dougong.messages import RequestOutput, SamplingParams
from dougong.server.disconnect import CLIENT_GONE_STATUS, ClientGoneError, while_connected
from dougong.server.event_stream import Events, EventStream
from dougong.server.generation import generate_all
from dougong.server.openai.growth import Growth, Piece
from dougong.server.openai.structured import spelt
from dougong.server.openai.usage import usage
from dougong.server.serving import Serving


@dataclass(frozen=True, slots=True)
class Work:
    """One request, understood.

    Attributes:
        route: For the metrics.
        prompts: Token ids of each; checked.
        params: For each of them.
        has_usage: A stream ends with an event that counts tokens.
        whole: The body of a whole answer from the outputs, by prompt.
        chunks: The events of a piece; none where there is nothing to tell.
        bare_chunk: An event without choices.
        lora: The adapter it uses.
        spelling: Fields that the engine's refusals name → as the client spelt them.
    """

    route: str
    prompts: Sequence[Sequence[int]]
    params: SamplingParams
    has_usage: bool
    whole: Callable[[Sequence[RequestOutput]], dict[str, Any]]
    chunks: Callable[[Piece, RequestOutput], Sequence[dict[str, Any]]]
    bare_chunk: Callable[[], dict[str, Any]]
    lora: str | None = None
    spelling: Mapping[str, str] = field(default_factory=dict)


async def answer_whole(request: Request, serving: Serving, work: Work) -> Response:
    """The answer once it is finished; given up when the client leaves."""
    try:
        outputs = await while_connected(request.receive, _final_outputs(serving, work))
    except ClientGoneError:
        return Response(status_code=CLIENT_GONE_STATUS)
    return JSONResponse(work.whole(outputs))


async def answer_stream(request: Request, serving: Serving, work: Work) -> Response:
    """The answer as it comes; ended when the client leaves."""
    events = _events(serving, work)
    try:
        first = await while_connected(request.receive, anext(events))
    except ClientGoneError:
        await events.aclose()
        return Response(status_code=CLIENT_GONE_STATUS)
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events)


async def _final_outputs(serving: Serving, work: Work) -> list[RequestOutput]:
    stream = generate_all(serving, work.route, work.prompts, work.params, work.lora)
    with spelt(work.spelling):
        async with aclosing(stream) as outputs:
            final = {index: output async for index, output in outputs}  # the last one of each stays
    return [final[index] for index in range(len(work.prompts))]


async def _events(serving: Serving, work: Work) -> Events:
    growth = Growth(len(work.prompts), work.params.n)
    final: dict[int, RequestOutput] = {}
    wants_prompt = work.params.prompt_logprobs is not None
    stream = generate_all(serving, work.route, work.prompts, work.params, work.lora)
    with spelt(work.spelling):
        async with aclosing(stream) as outputs:
            async for index, output in outputs:
                final[index] = output
                if wants_prompt and output.prompt_logprobs is None:
                    continue  # another sequence of it was quicker; its pieces come with the next
                for piece in growth.pieces(index, output):
                    for event in work.chunks(piece, output):
                        if work.has_usage:
                            event["usage"] = None
                        yield event
    if work.has_usage:
        yield {**work.bare_chunk(), "usage": usage(final.values())}
