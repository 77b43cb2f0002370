"""Which rank is named when several have something to say: the one at fault, not those it hurt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from dougong_conformance.judging import Judge
from dougong_conformance.outcomes import CheckFailed, NotRun, Outcome, SubjectLost
from dougong_conformance.subject import Raised
from dougong_conformance.suite.communicator_scripts import (
    everyone,
    integers,
    play,
    pool,
    sizes_of,
    step,
)

RIGHT = torch.ones(2)


class Told:
    """Ranks that answer as they were told to."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[Mapping[str, Any]] = []

    @property
    def size(self) -> int:
        return len(self.answers)

    def call_all(
        self, procedure: str, arguments: Sequence[Mapping[str, Any]], *, timeout_s: float = 25.0
    ) -> list[Any]:
        self.sent = list(arguments)
        return self.answers

    def kill(self, rank: int) -> None:
        raise NotImplementedError


def _gave(value: torch.Tensor) -> list[dict[str, Any]]:
    return [{"value": value}]


def _raised(kind: str) -> list[dict[str, Any]]:
    return [{"raised": {"kind": kind, "kinds": [kind], "message": "so it went"}}]


def _play(*answers: Any) -> None:
    scripts = [[step("all_reduce", RIGHT, right=RIGHT)] for _ in answers]
    play(Told(*answers), Judge(), everyone(len(answers)), scripts)


def test_right_answers_of_all_ranks_pass() -> None:
    _play(_gave(RIGHT), _gave(RIGHT))


def test_a_wrong_value_comes_before_the_errors_it_caused() -> None:
    with pytest.raises(CheckFailed, match="rank 2 differs in 2 of 2"):
        _play(_raised("PeerLost"), _raised("CommunicatorTimeout"), _gave(-RIGHT))


def test_an_error_comes_before_the_peers_that_miss_the_rank() -> None:
    with pytest.raises(CheckFailed, match="rank 1: all_reduce raised RuntimeError: so it went"):
        _play(_raised("PeerLost"), _raised("RuntimeError"), _raised("CommunicatorTimeout"))


def test_a_loss_comes_before_the_peers_that_miss_the_rank() -> None:
    lost = SubjectLost("no answer within 25 s", Outcome.TIMEOUT)
    with pytest.raises(SubjectLost, match="rank 1: no answer") as caught:
        _play(_raised("CommunicatorTimeout"), lost)
    assert caught.value.outcome is Outcome.TIMEOUT


def test_an_error_comes_before_a_loss() -> None:
    failed = Raised("KeyError", ("KeyError",), "no such backend")
    with pytest.raises(CheckFailed, match="rank 1: KeyError: no such backend"):
        _play(SubjectLost("killed"), failed)


def test_late_peers_are_the_cause_where_nothing_else_is() -> None:
    with pytest.raises(CheckFailed, match="rank 0: all_reduce raised CommunicatorTimeout"):
        _play(_raised("CommunicatorTimeout"), _raised("CommunicatorTimeout"))


def test_nothing_is_expected_where_nothing_should_come() -> None:
    scripts = [[step("gather", RIGHT, right=None)]]
    play(Told([{"value": None}]), Judge(), everyone(1), scripts)
    with pytest.raises(CheckFailed, match="gives something"):
        play(Told(_gave(RIGHT)), Judge(), everyone(1), scripts)


def test_what_is_expected_stays_with_the_judge_and_idle_ranks_join_no_group() -> None:
    ranks = Told(_gave(RIGHT), [])
    play(ranks, Judge(), everyone(1), [[step("all_reduce", RIGHT, right=RIGHT, after=2)]])
    (sent,) = ranks.sent[0]["steps"]
    assert sent.keys() == {"do", "group", "tensor", "arguments", "after"}
    assert ranks.sent[1]["groups"] == {}
    assert len({one["meeting"] for one in ranks.sent}) == 1


def test_the_largest_group_that_fits_is_used_and_sizes_beyond_it_are_said() -> None:
    class Machine:
        def ranks(self, size: int, *, can_be_killed: bool = False) -> Told:
            if size > 3:
                raise NotRun("three devices")
            return Told(*range(size))

    subject: Any = Machine()
    judge = Judge()
    assert list(sizes_of(pool(subject), judge)) == [2, 3]
    assert judge.warnings == ["groups of 4 ranks were not tried: this machine has 3"]


def test_each_rank_has_inputs_of_its_own() -> None:
    first, second = integers("x", 2, 64)
    assert not torch.equal(first, second)
    assert torch.equal(first, integers("x", 2, 64)[0])
    assert first.abs().max() <= 8
