"""What is new in an answer that is told as everything so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dougong.messages import CompletionOutput, FinishReason, RequestOutput, TokenLogprobs


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one sequence gained; made for each token, so in the form that is made quickest.

    Attributes:
        index: Of the choice, over all prompts of the request.
        text: New text; may be empty.
        offset: Characters of text before it.
        logprobs: Of the new tokens, where asked for.
        is_first: Nothing of this sequence was told before.
        finish_reason: Set in the last piece of a sequence.
        stop_reason: The stop string or id that ended it.
    """

    index: int
    text: str
    offset: int
    logprobs: list[TokenLogprobs] | None
    is_first: bool
    finish_reason: FinishReason | None
    stop_reason: str | int | None


@dataclass(slots=True)
class _Told:
    num_characters: int = 0
    num_logprobs: int = 0
    is_begun: bool = False
    is_over: bool = False


class Growth:
    """Turns snapshots into pieces.

    Args:
        num_prompts: Prompts of the request.
        n: Sequences of each.
    """

    def __init__(self, num_prompts: int, n: int) -> None:
        self._n = n
        self._told = [_Told() for _ in range(num_prompts * n)]

    def pieces(self, prompt_index: int, output: RequestOutput) -> Iterator[Piece]:
        """One for each sequence that has something new."""
        for one in output.outputs:
            piece = self._piece(prompt_index * self._n + one.index, one)
            if piece is not None:
                yield piece

    def _piece(self, index: int, one: CompletionOutput) -> Piece | None:
        told = self._told[index]
        text = one.text[told.num_characters :]
        logprobs = None if one.logprobs is None else one.logprobs[told.num_logprobs :]
        if told.is_over or not (text or logprobs or one.finish_reason is not None):
            return None
        piece = Piece(
            index=index,
            text=text,
            offset=told.num_characters,
            logprobs=logprobs,
            is_first=not told.is_begun,
            finish_reason=one.finish_reason,
            stop_reason=one.stop_reason,
        )
        told.num_characters += len(text)
        told.num_logprobs += len(logprobs or ())
        told.is_begun = True
        told.is_over = one.finish_reason is not None
        return piece
