"""Rows of a batch that ask for log-probabilities of their prompt, as its tokens are computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Tokens of prompts that follow a token of this step.

    Attributes:
        rows: Rows of the batch, in step order, that have any.
        counts: How many each has.
        num_logprobs: Most likely tokens that each wants beside.
        hidden_rows: int64 ``[num_tokens]``: the step's hidden states that predict the tokens.
        token_ids: int64 ``[num_tokens]``.
    """

    rows: npt.NDArray[np.intp]
    counts: npt.NDArray[np.int64]
    num_logprobs: npt.NDArray[np.int64]
    hidden_rows: npt.NDArray[np.int64]
    token_ids: npt.NDArray[np.int64]


class PromptRows:
    """Arrays parallel to the rows of a batch.

    Args:
        max_num_seqs: Rows.
    """

    def __init__(self, max_num_seqs: int) -> None:
        self._num_logprobs = np.zeros(max_num_seqs, np.int64)
        self._num_prompt = np.zeros(max_num_seqs, np.int64)  # 0: the row does not ask
        self._num_asking = 0

    def __bool__(self) -> bool:
        return self._num_asking > 0

    def set(self, row: int, num_logprobs: int, num_prompt_tokens: int) -> None:
        """Ask for a row."""
        self._num_logprobs[row] = num_logprobs
        self._num_prompt[row] = num_prompt_tokens
        self._num_asking += 1

    def clear(self, row: int) -> None:
        """Forget a row."""
        self._num_asking -= int(self._num_prompt[row] > 0)
        self._num_prompt[row] = 0

    def move(self, source: int, target: int) -> None:
        """Take a row's place; ``target`` was cleared before."""
        for column in (self._num_logprobs, self._num_prompt):
            column[target] = column[source]
        self._num_prompt[source] = 0

    def select(
        self,
        rows: npt.NDArray[np.intp],
        computed: npt.NDArray[np.int32],
        counts: npt.NDArray[np.int32],
        token_ids: npt.NDArray[np.int32],
    ) -> PromptTokens | None:
        """What is due of a step; ``None`` where nothing is.

        Args:
            rows: Of the step, in its order.
            computed: Tokens of these rows that were computed before.
            counts: Tokens of these rows in the step.
            token_ids: ``[num_rows, most tokens]``, of every row of the batch.
        """
        ends = np.minimum(computed + counts, self._num_prompt[rows] - 1)
        due = np.maximum(ends - computed, 0)
        chosen = np.flatnonzero(due)
        if not chosen.size:
            return None
        starts = np.cumsum(counts) - counts
        due, asking = due[chosen], rows[chosen]
        within = np.arange(due.sum()) - np.repeat(np.cumsum(due) - due, due)
        positions = within + np.repeat(computed[chosen], due) + 1
        return PromptTokens(
            rows=asking,
            counts=due,
            num_logprobs=self._num_logprobs[asking],
            hidden_rows=within + np.repeat(starts[chosen], due),
            token_ids=token_ids[np.repeat(asking, due), positions].astype(np.int64),
        )
