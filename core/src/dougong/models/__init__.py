"""Model families: one file each, built from ops and attention alone, and how they are loaded."""

from __future__ import annotations

from dougong.models.causal_lm import CausalLM, WeightTarget
from dougong.models.encoder_model import EncoderModel, EncoderStep
from dougong.models.loadable import LoadableModel
from dougong.models.loader import WeightLoadReport, build_model, load_model, load_weights
from dougong.models.registry import ModelRegistry

__all__ = [
    "CausalLM",
    "EncoderModel",
    "EncoderStep",
    "LoadableModel",
    "ModelRegistry",
    "WeightLoadReport",
    "WeightTarget",
    "build_model",
    "load_model",
    "load_weights",
]
