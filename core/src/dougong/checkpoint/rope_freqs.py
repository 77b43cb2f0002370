"""The rotary scaling of Llama 3.1 and later, recovered from a GGUF file's table of factors.

Converters store no parameters for it, only the result: ``rope_freqs.weight``, one divisor for each
rotary frequency. Every published model uses the same three constants besides the factor itself, so
the factor is read off the table and the table is then computed again: equal, or refused.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dougong.errors import CheckpointError

_LOW_FREQ_FACTOR = 1.0
_HIGH_FREQ_FACTOR = 4.0
_ORIGINAL_CONTEXT = 8192
_TOLERANCE = 1e-3


def llama3_rope(
    divisors: tuple[float, ...], head_dim: int, rope_theta: float, path: Path
) -> dict[str, Any] | None:
    """Scaling in config.json's vocabulary that gives exactly these divisors.

    Args:
        divisors: ``head_dim / 2`` values of ``rope_freqs.weight``.
        head_dim: Rotary width of one head.
        rope_theta: Base of the rotary frequencies.
        path: Where they came from, for the message.

    Returns:
        ``None`` when every divisor is 1: no scaling.

    Raises:
        CheckpointError: The table follows another rule.
    """
    factor = max(divisors)
    if factor == min(divisors) == 1.0:
        return None
    expected = [_divisor(rope_theta ** (-2 * i / head_dim), factor) for i in range(head_dim // 2)]
    same = len(divisors) == len(expected) and all(
        math.isclose(a, b, rel_tol=_TOLERANCE) for a, b in zip(divisors, expected, strict=True)
    )
    if not same:
        raise CheckpointError(
            f"{path} scales its rotary frequencies by a table (rope_freqs.weight) that is not "
            "Llama 3's rule, so long texts would come out wrong. Use the model's safetensors."
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LOW_FREQ_FACTOR,
        "high_freq_factor": _HIGH_FREQ_FACTOR,
        "original_max_position_embeddings": _ORIGINAL_CONTEXT,
    }


def _divisor(frequency: float, factor: float) -> float:
    """Llama 3's rule: long waves are slowed by ``factor``, short ones kept."""
    wavelength = 2 * math.pi / frequency
    if wavelength < _ORIGINAL_CONTEXT / _HIGH_FREQ_FACTOR:
        return 1.0
    if wavelength > _ORIGINAL_CONTEXT / _LOW_FREQ_FACTOR:
        return factor
    span = _HIGH_FREQ_FACTOR - _LOW_FREQ_FACTOR
    smooth = (_ORIGINAL_CONTEXT / wavelength - _LOW_FREQ_FACTOR) / span
    return 1 / ((1 - smooth) / factor + smooth)
