"""Sampling parameters of live rows; the common case, all greedy, costs nothing per step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dougong.messages.step import NewRequestData
from dougong.sampling import SamplingInputs, uniform_numbers
from dougong.sampling.inputs import ALL_GREEDY, RandomRows, TokenCells
from dougong.worker.bad_words import BadWords
from dougong.worker.penalty_rows import PenaltyRows
from dougong.worker.prompt_rows import PromptRows
from dougong.worker.row_cells import RowCells


class SamplingRows:
    """Arrays parallel to the rows of `InputBatch`, and what of them needs anything special.

    Args:
        max_num_seqs: Rows.
        vocab_size: Value of ``top_k`` that cuts nothing.

    Attributes:
        num_logprobs: Most likely tokens to report, by row.
        prompts: Rows that also ask for log-probabilities of their prompt.
    """

    def __init__(self, max_num_seqs: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._temperature = np.zeros(max_num_seqs, np.float32)
        self._top_k = np.full(max_num_seqs, vocab_size, np.int64)
        self._top_p = np.ones(max_num_seqs, np.float32)
        self._min_p = np.zeros(max_num_seqs, np.float32)
        self._seed = np.zeros(max_num_seqs, np.int64)
        self._num_prompt = np.zeros(max_num_seqs, np.int64)
        self._places = np.full(max_num_seqs, -1, np.int64)  # of rows in a step, while it is made
        self._num_random = 0
        self._penalties = PenaltyRows(max_num_seqs)
        self._bias, self._allowed = RowCells(), RowCells()
        self._stops = RowCells()  # suppressed while the output is shorter than their value
        self._bad_words = BadWords()
        self._has_edits = False  # whether any of these five has something
        self.num_logprobs: dict[int, int] = {}
        self.prompts = PromptRows(max_num_seqs)

    def set(self, row: int, new: NewRequestData) -> None:
        """Fill a row."""
        params = new.sampling_params
        self._temperature[row] = params.temperature
        self._top_k[row] = min(params.top_k or self._vocab_size, self._vocab_size)
        self._top_p[row] = params.top_p
        self._min_p[row] = params.min_p
        self._seed[row] = params.seed or 0
        self._num_prompt[row] = new.num_prompt_tokens
        self._num_random += not params.is_greedy
        if params.has_penalties:
            self._penalties.set(row, params)
        if params.logit_bias:
            bias = dict(params.logit_bias)
            self._bias.set(row, list(bias), list(bias.values()))
        if params.allowed_token_ids is not None:
            allowed = sorted(set(params.allowed_token_ids))
            self._allowed.set(row, allowed, [0.0] * len(allowed))
        if params.min_tokens and new.stop_token_ids:
            stops = sorted(new.stop_token_ids)
            self._stops.set(row, stops, [params.min_tokens] * len(stops))
        if params.bad_token_ids:
            self._bad_words.set(row, params.bad_token_ids)
        if params.logprobs is not None:
            self.num_logprobs[row] = params.logprobs
        if params.prompt_logprobs is not None and len(new.token_ids) == new.num_prompt_tokens:
            self.prompts.set(row, params.prompt_logprobs, new.num_prompt_tokens)
        self._has_edits = any(self._features)

    def clear(self, row: int) -> None:
        """Forget a row."""
        self._num_random -= bool(self._temperature[row] > 0)
        self._temperature[row] = 0
        for feature in (*self._features, self.prompts):
            feature.clear(row)
        self.num_logprobs.pop(row, None)
        self._has_edits = any(self._features)

    def move(self, source: int, target: int) -> None:
        """Take a row's place; ``target`` was cleared before."""
        for column in (
            self._temperature,
            self._top_k,
            self._top_p,
            self._min_p,
            self._seed,
            self._num_prompt,
        ):
            column[target] = column[source]
        self._temperature[source] = 0
        for feature in (*self._features, self.prompts):
            feature.move(source, target)
        if source in self.num_logprobs:
            self.num_logprobs[target] = self.num_logprobs.pop(source)

    def inputs(
        self,
        rows: npt.NDArray[np.intp],
        num_tokens: npt.NDArray[np.int32],
        token_ids: npt.NDArray[np.int32],
    ) -> SamplingInputs:
        """What a step asks for.

        Args:
            rows: That the step samples.
            num_tokens: Known tokens of every row of the batch.
            token_ids: Which they are, ``[num_rows, most tokens]``.
        """
        if not (self._num_random or self._has_edits or self.num_logprobs):
            return ALL_GREEDY
        held, num_prompt = num_tokens[rows], self._num_prompt[rows]
        num_output = held - num_prompt
        random = self._random_rows(rows, num_output)
        num_logprobs = None
        if self.num_logprobs:
            most = max(self.num_logprobs.get(row, -1) for row in rows.tolist())
            num_logprobs = None if most < 0 else most
        if not self._has_edits:
            return SamplingInputs(random=random, num_logprobs=num_logprobs)
        self._places[rows] = np.arange(rows.size)
        bias, allowed = self._bias.select(self._places), self._allowed.select(self._places)
        suppressed = self._suppressed(num_output, num_tokens, token_ids)
        self._places[rows] = -1
        return SamplingInputs(
            random=random,
            penalised=self._penalties.select(rows, held, num_prompt, token_ids),
            biased=None if bias is None else bias.cells,
            bias=None if bias is None else bias.values,
            allowed=None if allowed is None else allowed.cells,
            suppressed=suppressed,
            num_logprobs=num_logprobs,
        )

    @property
    def _features(self) -> tuple[PenaltyRows, RowCells, RowCells, RowCells, BadWords]:
        return self._penalties, self._bias, self._allowed, self._stops, self._bad_words

    def _suppressed(
        self,
        num_output: npt.NDArray[np.int64],
        num_tokens: npt.NDArray[np.int32],
        token_ids: npt.NDArray[np.int32],
    ) -> TokenCells | None:
        found = []
        stops = self._stops.select(self._places)
        if stops is not None:
            is_early = num_output[stops.cells.rows] < stops.values
            if is_early.any():
                cells = stops.cells
                found.append(TokenCells(cells.rows[is_early], cells.token_ids[is_early]))
        bad = self._bad_words.select(self._places, num_tokens, self._num_prompt, token_ids)
        if bad is not None:
            found.append(bad)
        if len(found) < 2:
            return found[0] if found else None
        return TokenCells(
            np.concatenate([cells.rows for cells in found]),
            np.concatenate([cells.token_ids for cells in found]),
        )

    def _random_rows(
        self, rows: npt.NDArray[np.intp], num_output: npt.NDArray[np.int64]
    ) -> RandomRows | None:
        chosen = np.flatnonzero(self._temperature[rows] > 0)
        if not chosen.size:
            return None
        drawn = rows[chosen]
        top_k, top_p, min_p = self._top_k[drawn], self._top_p[drawn], self._min_p[drawn]
        return RandomRows(
            rows=chosen.astype(np.int64),
            temperature=self._temperature[drawn],
            top_k=top_k,
            top_p=top_p,
            uniform=uniform_numbers(self._seed[drawn], num_output[chosen]),
            has_cuts=bool((top_k < self._vocab_size).any() or (top_p < 1).any()),
            min_p=min_p if min_p.any() else None,
        )
