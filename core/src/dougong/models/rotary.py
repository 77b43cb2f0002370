"""Rotary settings turned into the table that `RotaryEmbedding` reads.

Frequencies and angles are those of `transformers` 5, computed in float32 on the host. A row of the
table depends on its position, never on the length of a prompt, the batch or the chunk, and but for
LongRoPE not on the number of rows: a key that was cached stays right whoever reads it later. For
that last bit, cosines and sines are taken in float64 and rounded; in float32, vector and remainder
loops round unequally.

**Dynamic NTK** needs a rule for that, because `transformers` takes the frequencies of a forward
call from the longest sequence in it. Here row ``p`` has the frequencies of a sequence that ends at
``p``: the unscaled ones within the original length, and beyond it those of length ``p + 1``. So the
numbers equal `transformers`' at every position of a prompt within the original length and of every
token decoded after it, beyond the original length too. They differ for a prompt that is itself
longer than the original length and is run in one call: there `transformers`' own answer depends on
how the prompt was cut, and this table gives the answer of the cut into single tokens.

**LongRoPE** has two sets of frequencies, for sequences within the original length and beyond it.
`transformers` chooses anew in every call, and keys that were cached before a sequence grew over the
border keep the other set. Here the table's length chooses once: an engine that admits sequences
beyond the original length uses the long set for all, another one the short set. So the numbers
equal `transformers`' for short sequences where ``max_model_len`` is within the original length, and
for sequences beyond it where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from dougong.models.rotary_settings import RotarySettings


def make_table(settings: RotarySettings, num_positions: int) -> torch.Tensor:
    """`cos_sin_table` on the default device; empty in an outline, where nobody reads it."""
    table = torch.empty(num_positions, settings.rotary_dim, dtype=torch.float32)
    if table.is_meta:  # a long one takes seconds and gigabytes
        return table
    return table.copy_(cos_sin_table(settings, num_positions))


def cos_sin_table(settings: RotarySettings, num_positions: int) -> torch.Tensor:
    """Cosines and sines of positions 0 to ``num_positions - 1``.

    Args:
        settings: See `dougong.models.rotary_settings`.
        num_positions: Rows.

    Returns:
        float32 ``[num_positions, rotary_dim]`` on the host: cosines, then sines, both multiplied by
        the attention factor of the type.
    """
    with torch.device("cpu"):
        frequencies, attention_factor = _frequencies(settings, num_positions)
        positions = torch.arange(num_positions)
        angles = positions[:, None].float() * frequencies
        if settings.rope_type == "dynamic" and num_positions > settings.max_position_embeddings:
            beyond = positions[settings.max_position_embeddings :]
            angles[settings.max_position_embeddings :] = _dynamic_angles(settings, beyond)
        wide = angles.double()
        return torch.cat((wide.cos().float(), wide.sin().float()), dim=-1) * attention_factor


def _frequencies(settings: RotarySettings, num_positions: int) -> tuple[torch.Tensor, float]:
    if settings.rope_type == "longrope":
        return _longrope(settings, num_positions)
    return _FREQUENCIES[settings.rope_type](settings)


def _exponents(settings: RotarySettings) -> torch.Tensor:
    return torch.arange(0, settings.rotary_dim, 2).float() / settings.rotary_dim


def _plain(settings: RotarySettings) -> torch.Tensor:
    return 1.0 / (settings.theta ** _exponents(settings))


def _default(settings: RotarySettings) -> tuple[torch.Tensor, float]:
    return _plain(settings), 1.0


def _linear(settings: RotarySettings) -> tuple[torch.Tensor, float]:
    return _plain(settings) / settings.number("factor"), 1.0


def _dynamic_angles(settings: RotarySettings, positions: torch.Tensor) -> torch.Tensor:
    """Angles beyond the original length, each position with the base of the length it ends.

    Source: bloc97 and emozilla's NTK-aware scaling, made dynamic.
    """
    factor, dim = settings.number("factor"), settings.rotary_dim
    lengths = positions[:, None].double() + 1
    stretch = factor * lengths / settings.max_position_embeddings - (factor - 1)
    bases = settings.theta * stretch ** (dim / (dim - 2))
    frequencies = 1.0 / bases ** _exponents(settings).double()
    return positions[:, None].float() * frequencies.float()


def _yarn(settings: RotarySettings) -> tuple[torch.Tensor, float]:
    """YaRN (Peng et al. 2023, arXiv:2309.00071): slow waves interpolated, fast ones kept."""
    dim, theta = settings.rotary_dim, settings.theta
    original = settings.number("original_max_position_embeddings")
    factor = _stated_or_implied_factor(settings, original)

    def dimension_of(rotations: float) -> float:
        turns = math.log(original / (rotations * 2 * math.pi))
        return dim * turns / (2 * math.log(theta))

    low = dimension_of(settings.parameters.get("beta_fast") or 32)
    high = dimension_of(settings.parameters.get("beta_slow") or 1)
    if settings.parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = (high - low) or 0.001
    kept = 1 - ((torch.arange(dim // 2).float() - low) / width).clamp(0, 1)
    waves = theta ** _exponents(settings)
    frequencies = 1.0 / (factor * waves) * (1 - kept) + 1.0 / waves * kept
    return frequencies, _yarn_attention_factor(settings, factor)


def _stated_or_implied_factor(settings: RotarySettings, original: float) -> float:
    if settings.parameters.get("factor") is None:
        return settings.max_position_embeddings / original
    return settings.number("factor")


def _yarn_attention_factor(settings: RotarySettings, factor: float) -> float:
    stated = settings.parameters.get("attention_factor")
    if stated is not None:
        return float(stated)
    mscale = settings.parameters.get("mscale")
    mscale_all_dim = settings.parameters.get("mscale_all_dim")
    if mscale and mscale_all_dim:
        return _yarn_mscale(factor, mscale) / _yarn_mscale(factor, mscale_all_dim)
    return _yarn_mscale(factor, 1.0)


def _yarn_mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _longrope(settings: RotarySettings, num_positions: int) -> tuple[torch.Tensor, float]:
    """LongRoPE (Ding et al. 2024, arXiv:2402.13753): a factor of its own for every wave."""
    original = settings.number("original_max_position_embeddings")
    stretch = settings.factors("long_factor" if num_positions > original else "short_factor")
    frequencies = 1.0 / (torch.tensor(stretch) * settings.theta ** _exponents(settings))
    return frequencies, _longrope_attention_factor(settings, original)


def _longrope_attention_factor(settings: RotarySettings, original: float) -> float:
    stated = settings.parameters.get("attention_factor")
    if stated is not None:
        return float(stated)
    factor = _stated_or_implied_factor(settings, original)
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def _llama3(settings: RotarySettings) -> tuple[torch.Tensor, float]:
    """Llama 3.1's rule: long waves slowed by the factor, short ones kept, a blend between them."""
    factor = settings.number("factor")
    low, high = settings.number("low_freq_factor"), settings.number("high_freq_factor")
    original = settings.number("original_max_position_embeddings")
    plain = _plain(settings)
    wavelengths = 2 * math.pi / plain
    smooth = (original / wavelengths - low) / (high - low)
    blend = (1 - smooth) * plain / factor + smooth * plain
    scaled = torch.where(wavelengths > original / low, plain / factor, blend)
    return torch.where(wavelengths < original / high, plain, scaled), 1.0


_FREQUENCIES: dict[str, Callable[[RotarySettings], tuple[torch.Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,  # up to the original length; `_dynamic_angles` beyond
    "yarn": _yarn,
    "llama3": _llama3,
}
