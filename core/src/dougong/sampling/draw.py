"""One random number per draw, from a request's seed and the position alone.

A counter-based generator (SplitMix64: Steele, Lea and Flood 2014, "Fast splittable pseudorandom
number generators") needs no state, so the same request draws the same tokens in any batch, after
any
preemption, on any device.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def uniform_numbers(
    seeds: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Numbers in [0, 1), one per ``(seed, position)``; 24 random bits each, exact in float32.

    Args:
        seeds: ``[num_rows]``, not negative.
        positions: ``[num_rows]``; the index of the token to draw.
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is what is meant
        state = _mix(seeds.astype(np.uint64) + _GOLDEN)
        state = _mix(state + _GOLDEN * (positions.astype(np.uint64) + np.uint64(1)))
    return (state >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))
