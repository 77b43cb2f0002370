"""What a step's sampling needs to know about its rows, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


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
    """

    rows: npt.NDArray[np.int64]
    temperature: npt.NDArray[np.float32]
    top_k: npt.NDArray[np.int64]
    top_p: npt.NDArray[np.float32]
    uniform: npt.NDArray[np.float32]
    has_cuts: bool


@dataclass(frozen=True, slots=True)
class SamplingInputs:
    """One step's sampling.

    Attributes:
        random: Rows that draw; ``None``: every row is greedy.
        suppressed: ``(row, token ids)`` that cannot be chosen now (``min_tokens``).
        num_logprobs: Most likely tokens to report for any row; ``None``: no row asked.
    """

    random: RandomRows | None = None
    suppressed: Sequence[tuple[int, Sequence[int]]] = ()
    num_logprobs: int | None = None


ALL_GREEDY = SamplingInputs()
