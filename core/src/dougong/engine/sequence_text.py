"""The text of one generated sequence, as its tokens arrive."""

from __future__ import annotations

from contextlib import suppress

from dougong.engine.detokenizer import Detokenizer
from dougong.engine.stop_strings import StopStrings
from dougong.messages import CompletionOutput, FinishReason, RequestDelta, SamplingParams


class SequenceText:
    """One sequence of a request, on the side that knows text.

    Attributes:
        output: Everything so far.
    """

    __slots__ = ("_detokenizer", "_eos_token_ids", "_params", "_stops", "output")

    def __init__(
        self,
        index: int,
        params: SamplingParams,
        detokenizer: Detokenizer,
        eos_token_ids: frozenset[int],
    ) -> None:
        self._params = params
        self._detokenizer = detokenizer
        self._eos_token_ids = eos_token_ids
        self._stops = (
            StopStrings(params.stop, is_included=params.include_stop_str_in_output)
            if params.stop
            else None
        )
        self.output = CompletionOutput(index, logprobs=None if params.logprobs is None else [])

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is added."""
        return self.output.finish_reason is not None

    def apply(self, delta: RequestDelta) -> bool:
        """Add what a step brought.

        Returns:
            Whether a stop string ended the sequence here, so that the engine must be told; false
            where the engine ended it itself.
        """
        output = self.output
        output.token_ids += delta.new_token_ids
        if output.logprobs is not None:
            output.logprobs += delta.logprobs
        text = self._detokenizer.push(self._readable(delta))
        if self._stops is not None:
            text = self._through_stops(self._stops, text, delta)
            if self._stops.matched is not None:
                output.text += text
                output.finish_reason = FinishReason.STOP
                output.stop_reason = self._stops.matched
                return delta.finish_reason is None
        elif delta.finish_reason is not None:
            text += self._detokenizer.flush()
        output.text += text
        if delta.finish_reason is not None:
            output.finish_reason = delta.finish_reason
            if delta.stop_token_id is not None and delta.stop_token_id not in self._eos_token_ids:
                output.stop_reason = delta.stop_token_id
        return False

    def abort(self) -> None:
        """End it as it stands, with what was held back."""
        if self.is_finished:
            return
        self.output.finish_reason = FinishReason.ABORT
        with suppress(Exception):  # the tokenizer's; the engine must hear of the end all the same
            rest, stops = self._detokenizer.flush(), self._stops
            self.output.text += rest if stops is None else stops.push(rest) + stops.flush()

    def _readable(self, delta: RequestDelta) -> list[int]:
        """Tokens whose text belongs to the answer: the stop token's does not."""
        if delta.stop_token_id is None or self._params.include_stop_str_in_output:
            return delta.new_token_ids
        return delta.new_token_ids[:-1]

    def _through_stops(self, stops: StopStrings, text: str, delta: RequestDelta) -> str:
        """Text to show; a stop string counts if it is complete after ``min_tokens``."""
        is_last = delta.finish_reason is not None
        if is_last:
            text += self._detokenizer.flush()
        is_counting = len(self.output.token_ids) > self._params.min_tokens
        shown = stops.push(text, is_counting=is_counting)
        return shown + stops.flush() if is_last else shown
