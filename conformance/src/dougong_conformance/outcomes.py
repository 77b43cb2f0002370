"""How a check can end: a closed set of ten, and the exceptions that lead to them."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The ten ways in which a check ends."""

    PASS = "pass"
    FAIL = "fail"
    CRASH = "crash"
    TIMEOUT = "timeout"
    DEVICE_LOST = "device_lost"
    ERROR = "error"
    NOT_CLAIMED = "not_claimed"
    NOT_RUN = "not_run"
    WAIVED = "waived"
    WAIVER_VIOLATION = "waiver_violation"


BAD = frozenset({Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT, Outcome.DEVICE_LOST, Outcome.ERROR})
"""Outcomes that make a run fail (exit 1), unless a waiver covers them."""


class CheckEnded(Exception):
    """Ends a check early with an outcome; raised by `Judge`, never by a plugin."""

    outcome: Outcome

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CheckFailed(CheckEnded):
    """What was measured contradicts the requirement."""

    outcome = Outcome.FAIL


class NotClaimed(CheckEnded):
    """The plugin does not claim the capability, and says so properly when it is asked."""

    outcome = Outcome.NOT_CLAIMED


class NotRun(CheckEnded):
    """Something that the check needs is not on this machine (a second device, memory)."""

    outcome = Outcome.NOT_RUN


class SubjectLost(Exception):
    """The process with the plugin ended or had to be ended during a call.

    Args:
        reason: As the supervisor found it.
        outcome: ``CRASH``, ``TIMEOUT`` or ``DEVICE_LOST``.
    """

    def __init__(self, reason: str, outcome: Outcome = Outcome.CRASH) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome
