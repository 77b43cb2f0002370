"""How long HCCL waits by itself, and why the engine must wait longer.

Where a peer does not come, HCCL ends its wait after a time of its own and says which step failed.
An engine that gives up before that tells only that nothing happened: the cause is then never seen.
So deadlines that are not longer are refused, with both numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from dougong.contracts import ConfigError, DeadlinePhase

EXEC_TIMEOUT_ENV = "HCCL_EXEC_TIMEOUT"
EXEC_TIMEOUT_S = 1836.0
"""Seconds, where the variable is not set. 0 is documented as "never", and reported not to be."""

_MARGIN = 1.25  # of HCCL's timeout: time for its error to reach this process


def exec_timeout_s(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds that HCCL waits inside a collective.

    Raises:
        ConfigError: The variable holds no number of seconds.
    """
    given = environ.get(EXEC_TIMEOUT_ENV, "").strip()
    if not given:
        return EXEC_TIMEOUT_S
    try:
        seconds = float(given)
    except ValueError:
        raise ConfigError(
            f"{EXEC_TIMEOUT_ENV}={given} is no number of seconds; unset it for {EXEC_TIMEOUT_S:g}"
        ) from None
    return seconds if seconds > 0 else EXEC_TIMEOUT_S


def settled_deadlines(
    given: Mapping[DeadlinePhase, float], vendor_s: float
) -> dict[DeadlinePhase, float]:
    """A deadline for each phase, the given ones as they are.

    Args:
        given: Seconds by phase; may leave some out.
        vendor_s: What HCCL waits.

    Raises:
        ConfigError: A given one is not longer than HCCL's own.
    """
    short = [f"{phase}: {given[phase]:g} s" for phase in DeadlinePhase
             if phase in given and given[phase] <= vendor_s]  # fmt: skip
    if short:
        raise ConfigError(
            f"HCCL waits {vendor_s:g} s inside a collective before it says what failed, and these "
            f"deadlines are not longer, so that its error would never be seen; make them longer, "
            f"or set {EXEC_TIMEOUT_ENV} to fewer seconds than the shortest of them:",
            tuple(short),
        )
    return {phase: given.get(phase, _MARGIN * vendor_s) for phase in DeadlinePhase}


def group_timeouts(
    deadlines: Mapping[DeadlinePhase, float], vendor_s: float
) -> dict[DeadlinePhase, float]:
    """How long torch-npu's own watch over a group waits, by phase: longer than HCCL, whose error
    says more, and shorter than the engine. It is the vendor's too, but knows only that time is
    over."""
    return {phase: (vendor_s + seconds) / 2 for phase, seconds in deadlines.items()}
