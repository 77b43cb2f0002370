"""What can be counted about the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from dougong.kv_cache import KVCacheUsage


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """The scheduler at one moment.

    Attributes:
        num_running: Requests that hold blocks.
        num_waiting: Requests that do not, forks waiting for their prompt included.
        num_preemptions: Since the start.
        kv_cache: The block pool.
    """

    num_running: int
    num_waiting: int
    num_preemptions: int
    kv_cache: KVCacheUsage
