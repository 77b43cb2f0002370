"""Answers from a model that this command has loaded."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from dougong.cli.chatting.session import AnswerStats, Message

if TYPE_CHECKING:
    from dougong.engine.llm import LLM
    from dougong.messages import SamplingParams


class LocalAnswerer:
    """Asks a model.

    Args:
        llm: In a process of its own, so that Ctrl-C ends an answer and not a step of the engine.
        params: Of every answer.
    """

    def __init__(self, llm: LLM, params: SamplingParams) -> None:
        self._llm = llm
        self._params = params

    def answer(self, messages: Sequence[Message], stats: AnswerStats) -> Generator[str]:
        """See `Answerer.answer`."""
        num_shown = 0
        outputs = self._llm.stream_chat(messages, self._params)
        assert isinstance(outputs, Generator), "leaving it ends the request"
        with closing(outputs):
            for output in outputs:
                (one,) = output.outputs
                stats.num_tokens = len(one.token_ids)
                stats.finish_reason = one.finish_reason
                if text := one.text[num_shown:]:
                    num_shown += len(text)
                    yield text
