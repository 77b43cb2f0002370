"""Who runs where: the ranks of one engine behind one set of calls."""

from __future__ import annotations

from dougong.executor.base import Executor, LoadedRanks
from dougong.executor.uniproc import UniprocExecutor

__all__ = ["Executor", "LoadedRanks", "UniprocExecutor"]
