"""Seconds that things may take: the same for every vendor, recorded in the header."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

COMPILE_BUDGET_CLAIM = "compile_budget_s"
"""Name in ``Claims.limits``: what the first call of each op may take beyond the deadline."""

RANKS_PER_DEVICE_CLAIM = "ranks_per_device"
"""Name in ``Claims.limits``: how many ranks may share a device; one unless it says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Deadlines; no option of the command line changes one.

    Attributes:
        start_s: An executor's start: torch, the plugin, its claims.
        case_min_s: What calls of one case may take together, at least.
        case_max_s: And at most.
        oracle_factor: Between the two: this many times the judge's own work on the case.
        compile_max_s: Largest budget that a claim can add to the first call of an op.
        term_s: Between SIGTERM, at which an executor leaves the stacks of its threads, and SIGKILL.
        silence_s: The judge may give no sign of life for so long.
        log_max_bytes: A log beyond this is cut.
    """

    start_s: float = 180.0
    case_min_s: float = 30.0
    case_max_s: float = 900.0
    oracle_factor: float = 10.0
    compile_max_s: float = 600.0
    term_s: float = 5.0
    silence_s: float = 120.0
    log_max_bytes: int = 64 << 20

    def case_s(self, oracle_s: float) -> float:
        """Deadline for the calls of a case whose judge has worked for ``oracle_s`` so far."""
        return min(self.case_max_s, max(self.case_min_s, self.oracle_factor * oracle_s))

    def to_json(self) -> dict[str, Any]:
        """Plain data, by field."""
        return asdict(self)
