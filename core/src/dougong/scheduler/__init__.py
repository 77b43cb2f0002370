"""Decides what each step computes; no torch."""

from __future__ import annotations

from dougong.scheduler.admission import RequestLimits
from dougong.scheduler.scheduler import Scheduler
from dougong.scheduler.stats import SchedulerStats

__all__ = ["RequestLimits", "Scheduler", "SchedulerStats"]
