"""Configuration: the user's wishes, what they are resolved to, and the reasons; no torch."""

from __future__ import annotations

from dougong.config.args import CommandDefault, EngineArgs, EngineOptions
from dougong.config.cache import CacheConfig
from dougong.config.decision import Decision
from dougong.config.engine import ComputeConfig, EngineConfig, KVCachePlan, MemoryConfig
from dougong.config.graphs import GraphConfig
from dougong.config.model import AttentionLayerKind, ModelConfig
from dougong.config.resolve import Resolution, resolve, view_of_wishes
from dougong.config.scheduler import SchedulerConfig, SchedulingPolicy

__all__ = [
    "AttentionLayerKind",
    "CacheConfig",
    "CommandDefault",
    "ComputeConfig",
    "Decision",
    "EngineArgs",
    "EngineConfig",
    "EngineOptions",
    "GraphConfig",
    "KVCachePlan",
    "MemoryConfig",
    "ModelConfig",
    "Resolution",
    "SchedulerConfig",
    "SchedulingPolicy",
    "resolve",
    "view_of_wishes",
]
