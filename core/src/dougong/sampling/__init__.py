"""From logits to tokens."""

from __future__ import annotations

from dougong.sampling.draw import uniform_numbers
from dougong.sampling.inputs import SamplingInputs
from dougong.sampling.sampler import SampledTokens, Sampler

__all__ = ["SampledTokens", "Sampler", "SamplingInputs", "uniform_numbers"]
