"""Inputs: the same bytes on every machine, from the suite's version, a check's id and a number."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

VECTOR_SET = "20261130"
"""Version of all drawn inputs: the last part of the suite's version."""

_hidden_seed = ""


def set_hidden_seed(seed: str) -> None:
    """Make every input of this process another; for certificates that nobody can learn by heart."""
    global _hidden_seed
    _hidden_seed = seed


def generator(id: str, index: int) -> np.random.Generator:
    """A counter-based generator for one input.

    Args:
        id: Of the check, or of what the input is for.
        index: Of the input.
    """
    text = f"{VECTOR_SET}|{id}|{index}|{_hidden_seed}"
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))


class Draw:
    """Tensors of one input, one after the other.

    Args:
        id: Of the check.
        index: Of the input.
        dtype: Of float tensors.
    """

    def __init__(self, id: str, index: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self._generator = generator(id, index)
        self.dtype = dtype

    def normal(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
        """Normal numbers, rounded to the dtype."""
        drawn = _tensor(self._generator.standard_normal(shape, dtype=np.float32))
        return (drawn * scale + shift).to(self.dtype)

    def uniform(self, *shape: int) -> torch.Tensor:
        """float32 in [0, 1)."""
        return _tensor(self._generator.random(shape, dtype=np.float32))

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """int64 from ``low`` to ``high - 1``."""
        return _tensor(self._generator.integers(low, high, size=shape, dtype=np.int64))

    def permutation(self, n: int) -> torch.Tensor:
        """int64: 0 to ``n - 1`` in some order."""
        return _tensor(self._generator.permutation(n).astype(np.int64))


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _normal(draw: Draw, shape: tuple[int, ...], scale: float) -> torch.Tensor:
    return draw.normal(*shape, scale=scale)


def _constant(draw: Draw, shape: tuple[int, ...], scale: float) -> torch.Tensor:
    """Rows of one number each: sums in a narrow type stop growing."""
    return (draw.normal(*shape[:-1], 1).abs() + 0.5).mul(scale).expand(shape).to(draw.dtype)


def _shifted(draw: Draw, shape: tuple[int, ...], scale: float) -> torch.Tensor:
    """Far from zero: what subtracts a mean, or does not, shows."""
    return draw.normal(*shape, scale=scale, shift=3 * scale)


def _small(draw: Draw, shape: tuple[int, ...], scale: float) -> torch.Tensor:
    """About as small as an eps: it counts."""
    return draw.normal(*shape, scale=1e-3 * scale)


def _wide(draw: Draw, shape: tuple[int, ...], scale: float) -> torch.Tensor:
    """Of very different sizes in one row."""
    return (draw.normal(*shape).float() * torch.exp2(4 * draw.normal(*shape).float())).to(
        draw.dtype
    ) * scale


def _zero(draw: Draw, shape: tuple[int, ...], scale: float) -> torch.Tensor:
    return torch.zeros(shape, dtype=draw.dtype)


VALUES: dict[str, Callable[[Draw, tuple[int, ...], float], torch.Tensor]] = {
    "normal": _normal,
    "constant": _constant,
    "shifted": _shifted,
    "small": _small,
    "wide": _wide,
    "zero": _zero,
}
"""Kinds of input that rows name; each exists because a mutant needs it."""


@cache
def rotary_table(num_positions: int, rotary_dim: int, *, base: float = 10000.0) -> torch.Tensor:
    """float32 ``[num_positions, rotary_dim]``: cosines, then sines; shared, so only to be read."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * base**-exponents
    return torch.cat((angles.cos(), angles.sin()), dim=-1).float()
