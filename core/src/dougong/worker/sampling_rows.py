"""Sampling parameters of live rows; the common case, all greedy, costs nothing per step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dougong.messages.step import NewRequestData
from dougong.sampling import SamplingInputs, uniform_numbers
from dougong.sampling.inputs import ALL_GREEDY, RandomRows


class SamplingRows:
    """Arrays parallel to the rows of `InputBatch`, and counts of rows that need anything special.

    Args:
        max_num_seqs: Rows.
        vocab_size: Value of ``top_k`` that cuts nothing.
    """

    def __init__(self, max_num_seqs: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._temperature = np.zeros(max_num_seqs, np.float32)
        self._top_k = np.full(max_num_seqs, vocab_size, np.int64)
        self._top_p = np.ones(max_num_seqs, np.float32)
        self._seed = np.zeros(max_num_seqs, np.int64)
        self._num_prompt = np.zeros(max_num_seqs, np.int64)
        self._suppressed: dict[int, tuple[int, list[int]]] = {}  # row → min_tokens, ids
        self.num_logprobs: dict[int, int] = {}  # row → most likely tokens to report
        self._num_random = 0

    def set(self, row: int, new: NewRequestData) -> None:
        """Fill a row."""
        params = new.sampling_params
        self._temperature[row] = params.temperature
        self._top_k[row] = min(params.top_k or self._vocab_size, self._vocab_size)
        self._top_p[row] = params.top_p
        self._seed[row] = params.seed or 0
        self._num_prompt[row] = new.num_prompt_tokens
        self._num_random += not params.is_greedy
        if params.min_tokens and new.stop_token_ids:
            self._suppressed[row] = (params.min_tokens, sorted(new.stop_token_ids))
        if params.logprobs is not None:
            self.num_logprobs[row] = params.logprobs

    def clear(self, row: int) -> None:
        """Forget a row."""
        self._num_random -= bool(self._temperature[row] > 0)
        self._temperature[row] = 0
        self._suppressed.pop(row, None)
        self.num_logprobs.pop(row, None)

    def move(self, source: int, target: int) -> None:
        """Take a row's place; ``target`` was cleared before."""
        for column in (self._temperature, self._top_k, self._top_p, self._seed, self._num_prompt):
            column[target] = column[source]
        self._temperature[source] = 0
        if source in self._suppressed:
            self._suppressed[target] = self._suppressed.pop(source)
        if source in self.num_logprobs:
            self.num_logprobs[target] = self.num_logprobs.pop(source)

    def inputs(
        self, rows: npt.NDArray[np.intp], num_tokens: npt.NDArray[np.int32]
    ) -> SamplingInputs:
        """What a step that samples ``rows``, which now hold ``num_tokens`` each, asks for."""
        if not (self._num_random or self._suppressed or self.num_logprobs):
            return ALL_GREEDY
        num_output = num_tokens - self._num_prompt[rows]
        asked = [self.num_logprobs[row] for row in rows.tolist() if row in self.num_logprobs]
        return SamplingInputs(
            random=self._random_rows(rows, num_output),
            suppressed=[
                (index, self._suppressed[row][1])
                for index, row in enumerate(rows.tolist())
                if row in self._suppressed and num_output[index] < self._suppressed[row][0]
            ],
            num_logprobs=max(asked) if asked else None,
        )

    def _random_rows(
        self, rows: npt.NDArray[np.intp], num_output: npt.NDArray[np.int64]
    ) -> RandomRows | None:
        chosen = np.flatnonzero(self._temperature[rows] > 0)
        if not chosen.size:
            return None
        drawn = rows[chosen]
        top_k, top_p = self._top_k[drawn], self._top_p[drawn]
        return RandomRows(
            rows=chosen.astype(np.int64),
            temperature=self._temperature[drawn],
            top_k=top_k,
            top_p=top_p,
            uniform=uniform_numbers(self._seed[drawn], num_output[chosen]),
            has_cuts=bool((top_k < self._vocab_size).any() or (top_p < 1).any()),
        )
