"""Ranks as threads, and the rule for how many a machine takes."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dougong_conformance.outcomes import NotRun, Outcome, SubjectLost
from dougong_conformance.procedures import procedure
from dougong_conformance.runner.ranks import check_capacity
from dougong_conformance.runner.remote import RemoteSubject
from dougong_conformance.runner.thread_ranks import thread_ranks
from dougong_conformance.session import PluginUnderTest, Session
from dougong_conformance.subject import Raised

PLUGIN = cast("PluginUnderTest", SimpleNamespace(name="made up"))
_together = threading.Barrier(3)


@procedure("test_ranks.meet")
def meet(session: Session, word: str) -> tuple[str, int]:
    """All ranks must be here at once."""
    _together.wait(20)
    if word == "bad":
        raise ValueError(word)
    return word, session.device_index


@procedure("test_ranks.sleep")
def sleep(session: Session, seconds: float) -> int:
    time.sleep(seconds)
    return session.device_index


def test_threads_run_at_once_and_each_answer_is_kept() -> None:
    make = thread_ranks(PLUGIN, num_devices=2)
    group = make(3, False)
    answers = group.call_all("test_ranks.meet", [{"word": one} for one in ("a", "bad", "c")])
    assert answers[0] == ("a", 0)
    assert isinstance(answers[1], Raised)
    assert answers[1].kind == "ValueError"
    assert answers[2] == ("c", 0)
    assert make(3, False) is group


def test_a_thread_that_hangs_is_a_lost_rank_and_its_group_is_made_anew() -> None:
    make = thread_ranks(PLUGIN)
    group = make(2, False)
    seconds = [{"seconds": 0.0}, {"seconds": 0.5}]
    answers = group.call_all("test_ranks.sleep", seconds, timeout_s=0.1)
    assert answers[0] == 0
    assert isinstance(answers[1], SubjectLost)
    assert answers[1].outcome is Outcome.TIMEOUT
    assert make(2, False) is not group


def test_threads_cannot_be_killed() -> None:
    make = thread_ranks(PLUGIN)
    with pytest.raises(NotRun, match="processes"):
        make(2, True)
    with pytest.raises(NotRun, match="thread"):
        make(2, False).kill(0)


@pytest.mark.parametrize(
    ("facts", "size", "is_enough"),
    [
        ({"device_type": "cpu", "num_devices": 1, "claims": {}}, 4, True),
        ({"device_type": "sim", "num_devices": 4, "claims": {}}, 4, True),
        ({"device_type": "sim", "num_devices": 2, "claims": {"limits": {}}}, 3, False),
        (
            {"device_type": "sim", "num_devices": 2, "claims": {"limits": {"ranks_per_device": 2}}},
            3,
            True,
        ),
    ],
)
def test_a_machine_takes_as_many_ranks_as_its_devices_do(
    facts: dict[str, Any], size: int, is_enough: bool
) -> None:
    subject = cast("RemoteSubject", SimpleNamespace(facts=SimpleNamespace(**facts)))
    if is_enough:
        check_capacity(subject, size)
    else:
        with pytest.raises(NotRun, match=f"{size} ranks are needed"):
            check_capacity(subject, size)
