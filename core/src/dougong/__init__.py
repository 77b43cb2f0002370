"""Dougong: an LLM serving core that knows no chip.

Importing this package opens no device, loads no plugin and resolves no platform; the names below
are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dougong.engine.async_engine import AsyncEngine
    from dougong.engine.llm import LLM
    from dougong.messages.output import EmbeddingOutput, RequestOutput
    from dougong.messages.pooling import PoolingParams
    from dougong.messages.request import SamplingParams
    from dougong.messages.structured_output import StructuredOutput

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AsyncEngine",
    "EmbeddingOutput",
    "PoolingParams",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutput",
    "__version__",
]

_HOME = {
    "LLM": "dougong.engine.llm",
    "AsyncEngine": "dougong.engine.async_engine",
    "EmbeddingOutput": "dougong.messages.output",
    "PoolingParams": "dougong.messages.pooling",
    "RequestOutput": "dougong.messages.output",
    "SamplingParams": "dougong.messages.request",
    "StructuredOutput": "dougong.messages.structured_output",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "current_platform":
        return importlib.import_module("dougong.platforms.current").current_platform()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
