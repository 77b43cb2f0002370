"""The step loop, and what surrounds it: text in, text out, in this process or another.

`LLM` is for scripts, `AsyncEngine` for programs with an event loop; both stand on `EngineCore`.
Names are imported when they are asked for, so that importing one room does not load another.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dougong.engine.async_engine import AsyncEngine
    from dougong.engine.core import EngineCore, EngineStats
    from dougong.engine.llm import LLM
    from dougong.engine.start_report import StartReport
    from dougong.engine.tokenizer import Tokenizer

__all__ = ["LLM", "AsyncEngine", "EngineCore", "EngineStats", "StartReport", "Tokenizer"]

_HOME = {
    "AsyncEngine": "dougong.engine.async_engine",
    "EngineCore": "dougong.engine.core",
    "EngineStats": "dougong.engine.core",
    "LLM": "dougong.engine.llm",
    "StartReport": "dougong.engine.start_report",
    "Tokenizer": "dougong.engine.tokenizer",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
