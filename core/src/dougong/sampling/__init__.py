"""From logits to tokens."""

from __future__ import annotations

from dougong.sampling.draw import uniform_numbers
from dougong.sampling.inputs import SamplingInputs
from dougong.sampling.sampler import SampledTokens, Sampler
from dougong.sampling.top_logprobs import TopLogprobs

__all__ = ["SampledTokens", "Sampler", "SamplingInputs", "TopLogprobs", "uniform_numbers"]
