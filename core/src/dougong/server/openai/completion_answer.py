"""A completion's answer, whole or in pieces, in OpenAI's form; with its prompt where asked for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from dougong.messages import RequestOutput
from dougong.server.openai.growth import Growth, Piece
from dougong.server.openai.logprobs import (
    completion_logprobs,
    joined_logprobs,
    prompt_completion_logprobs,
    prompt_logprobs,
)
from dougong.server.openai.usage import usage
from dougong.server.serving import Serving


class CompletionAnswer:
    """Writes one request's answer.

    Args:
        serving: The engine and its server.
        model: What the client called the model.
        n: Answers to each prompt.
        num_top: Most likely tokens to show with each log-probability.
        num_prompt_top: The same of the prompt; ``None``: nothing of it is shown.
        echo: Texts of the prompts, which come before the answers; ``None``: they do not.
    """

    def __init__(
        self,
        serving: Serving,
        model: str,
        *,
        n: int,
        num_top: int,
        num_prompt_top: int | None,
        echo: Sequence[str] | None,
    ) -> None:
        self._tokenizer = serving.engine.tokenizer
        self._n = n
        self._num_top = num_top
        self._num_prompt_top = num_prompt_top
        self._echo = echo
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def bare_chunk(self) -> dict[str, Any]:
        """An event without choices."""
        return {**self._head, "choices": []}

    def chunks(self, piece: Piece, output: RequestOutput) -> Sequence[dict[str, Any]]:
        """The event of a piece."""
        return ({**self._head, "choices": [self._choice(piece, output)]},)

    def whole(self, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
        """The body."""
        growth = Growth(len(outputs), self._n)
        choices = [
            self._choice(piece, output)
            for index, output in enumerate(outputs)
            for piece in growth.pieces(index, output)
        ]
        return {**self._head, "choices": choices, "usage": usage(outputs)}

    def _choice(self, piece: Piece, output: RequestOutput) -> dict[str, Any]:
        before = "" if self._echo is None else self._echo[piece.index // self._n]
        logprobs = None
        if piece.logprobs is not None:
            offset = len(before) + piece.offset
            logprobs = completion_logprobs(piece.logprobs, self._num_top, self._tokenizer, offset)
            if self._echo is not None and piece.is_first:
                of_prompt = prompt_completion_logprobs(output, self._num_top, self._tokenizer)
                logprobs = joined_logprobs(of_prompt, logprobs)
        choice = {
            "index": piece.index,
            "text": before + piece.text if piece.is_first else piece.text,
            "logprobs": logprobs,
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
        }
        if self._num_prompt_top is not None and piece.is_first:
            found = output.prompt_logprobs or ()
            shown = prompt_logprobs(found, self._num_prompt_top, self._tokenizer)
            choice["prompt_logprobs"] = shown
        return choice
