"""What a step's sampling needs to know about its rows, on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True, slots=True)
class RandomRows:
    """Rows that draw, among all rows of the step.

    Attributes:
        rows: int64 ``[num_random]``, rows of the step's logits.
        temperature: float32 ``[num_random]``, above 0.
        top_k: int64 ``[num_random]``; the vocabulary size cuts nothing.
        top_p: float32 ``[num_random]``; 1 cuts nothing.
        uniform: float32 ``[num_random]`` in [0, 1).
        has_cuts: Whether any row has a ``top_k`` or ``top_p`` that cuts.
        min_p: float32 ``[num_random]``, 0 cuts nothing; ``None``: no row has one.
    """

    rows: npt.NDArray[np.int64]
    temperature: npt.NDArray[np.float32]
    top_k: npt.NDArray[np.int64]
    top_p: npt.NDArray[np.float32]
    uniform: npt.NDArray[np.float32]
    has_cuts: bool
    min_p: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class TokenCells:
    """Single logits of a step; parallel arrays, no cell twice.

    Attributes:
        rows: int64, rows of the step's logits.
        token_ids: int64.
    """

    rows: npt.NDArray[np.int64]
    token_ids: npt.NDArray[np.int64]

    @classmethod
    def of(cls, tokens: Mapping[int, Sequence[int]]) -> TokenCells | None:
        """Cells of some tokens per row; ``None`` for no cell at all."""
        counts = [len(token_ids) for token_ids in tokens.values()]
        if not sum(counts):
            return None
        return cls(
            np.repeat(np.fromiter(tokens, np.int64, len(tokens)), counts),
            np.concatenate([np.array(token_ids, np.int64) for token_ids in tokens.values()]),
        )


@dataclass(frozen=True, slots=True)
class PenalisedRows:
    """Rows with penalties, and the tokens that they hold.

    Attributes:
        rows: int64 ``[num_penalised]``, rows of the step's logits, ascending.
        repetition: float32 ``[num_penalised]``; 1 changes nothing.
        frequency: float32 ``[num_penalised]``; 0 changes nothing.
        presence: The same.
        prompt: Tokens of the prompts, by row of this object; a token may stand there twice.
        output: Tokens that were generated, each as often as it was.
    """

    rows: npt.NDArray[np.int64]
    repetition: npt.NDArray[np.float32]
    frequency: npt.NDArray[np.float32]
    presence: npt.NDArray[np.float32]
    prompt: TokenCells
    output: TokenCells


@dataclass(frozen=True, slots=True)
class GrammarRows:
    """Rows whose tokens a grammar limits.

    Attributes:
        rows: int64 ``[num_masked]``, rows of the step's logits, each once.
        bitmask: int32 ``[num_masked, ceil(vocab_size / 32)]`` on the host; token ``t`` is allowed
            where bit ``t % 32`` of word ``t // 32`` is set.
    """

    rows: npt.NDArray[np.int64]
    bitmask: torch.Tensor


@dataclass(frozen=True, slots=True)
class SamplingInputs:
    """One step's sampling; ``None`` wherever no row asks for something.

    Attributes:
        random: Rows that draw; ``None``: every row is greedy.
        penalised: Rows whose tokens become less likely once they were seen.
        biased: Logits to which ``bias`` is added.
        bias: float32, parallel to ``biased``.
        allowed: In a row that has a cell here, no other token can be chosen.
        grammar: Rows with a mask of their own.
        suppressed: Tokens that cannot be chosen now; a cell may stand there twice.
        num_logprobs: Most likely tokens to report for any row; ``None``: no row asked.
    """

    random: RandomRows | None = None
    penalised: PenalisedRows | None = None
    biased: TokenCells | None = None
    bias: npt.NDArray[np.float32] | None = None
    allowed: TokenCells | None = None
    grammar: GrammarRows | None = None
    suppressed: TokenCells | None = None
    num_logprobs: int | None = None


ALL_GREEDY = SamplingInputs()
