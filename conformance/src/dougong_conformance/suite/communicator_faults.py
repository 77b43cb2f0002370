"""Ranks that die, are silent, or call what the others do not: typed, in time, and never for ever.

A library may be beyond use after these, and with it the device; so each check has ranks of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.outcomes import SubjectLost
from dougong_conformance.subject import Ranks, Subject
from dougong_conformance.suite.communicator_scripts import (
    PHASES,
    Step,
    everyone,
    play_freely,
    step,
)

SIZE = 3
DEATH_FOUND_S = 10.0
SHORT_S = 1.0
PATIENT = dict.fromkeys(PHASES, 12.0)


@contextmanager
def _spent_ranks(subject: Subject) -> Iterator[Ranks]:
    """Ranks that nobody else uses afterwards."""
    ranks = subject.ranks(SIZE, can_be_killed=True)
    try:
        yield ranks
    finally:
        for rank in range(ranks.size):
            ranks.kill(rank)


def _ones() -> torch.Tensor:
    return torch.ones(4)


def _answered(answers: Sequence[Any], judge: Judge, ranks: Sequence[int]) -> list[list[Any]]:
    """The records of some ranks, which must have answered."""
    for rank in ranks:
        if isinstance(answers[rank], SubjectLost):
            loss = answers[rank]
            raise SubjectLost(f"rank {rank}: {loss.reason}", loss.outcome)
        judge.require(isinstance(answers[rank], list), f"rank {rank}: {answers[rank]}")
    return [answers[rank] for rank in ranks]


def _require_kind(judge: Judge, record: Any, kind: str, what: str) -> None:
    raised = record.get("raised")
    judge.require(raised is not None, f"{what} gave a result; {kind} is expected")
    judge.require(
        kind in raised["kinds"],
        f"{what} raised {raised['kind']}: {raised['message']}; {kind} is expected",
    )


@check("communicator.peer_death")
def peer_death(subject: Subject, judge: Judge) -> None:
    with _spent_ranks(subject) as ranks:
        first = step("all_reduce", _ones(), is_read=True)
        scripts: list[list[Step]] = [
            [first, step("all_reduce", _ones(), is_read=True)],
            [first, step("die", seconds=0.2)],
            [first, step("sleep", seconds=1.0), step("all_reduce", _ones(), is_read=True)],
        ]
        deadlines = dict.fromkeys(PHASES, 24.0)
        answers = play_freely(ranks, everyone(SIZE), scripts, deadlines_s=deadlines)
        judge.require(isinstance(answers[1], SubjectLost), "rank 1 did not die as it was told")
        for rank, records in zip((0, 2), _answered(answers, judge, (0, 2)), strict=True):
            last = records[-1]
            _require_kind(judge, last, "PeerLost", f"all_reduce without rank 1, on rank {rank},")
            waited = last["ended_s"] - last["began_s"]
            judge.at_most("seconds until a dead peer is found", waited, DEATH_FOUND_S)


@check("communicator.silent_peer")
def silent_peer(subject: Subject, judge: Judge) -> None:
    with _spent_ranks(subject) as ranks:
        first = step("all_reduce", _ones(), is_read=True)
        serve = step("phase", phase="serve")
        call = step("all_reduce", _ones(), is_read=True)
        scripts = [[first, serve, call], [first, serve, call], [first, serve]]
        scripts[2].append(step("sleep", seconds=SHORT_S + 2.0))
        deadlines = {**PATIENT, "serve": SHORT_S}
        answers = play_freely(ranks, everyone(SIZE), scripts, deadlines_s=deadlines)
        for rank, records in zip((0, 1), _answered(answers, judge, (0, 1)), strict=True):
            what = f"all_reduce without rank 2, which lives, on rank {rank},"
            _require_kind(judge, records[2], "CommunicatorTimeout", what)
            waited = records[2]["ended_s"] - records[2]["began_s"]
            judge.at_most(
                f"seconds until a deadline of {SHORT_S:g} s is an error", waited, SHORT_S + 6.0
            )


@check("communicator.abort")
def abort(subject: Subject, judge: Judge) -> None:
    with _spent_ranks(subject) as ranks:
        first = step("all_reduce", _ones(), is_read=True)
        waits = [
            first,
            step("abort_later", seconds=0.3),
            step("all_reduce", _ones(), is_read=True),
            step("all_reduce", _ones(), is_read=True),
        ]
        scripts = [waits, [first, step("sleep", seconds=2.5)]]
        answers = play_freely(ranks, everyone(2), scripts, deadlines_s=PATIENT)
        (records,) = _answered(answers, judge, (0,))
        for nth, what in ((2, "a call that waits while abort() comes"), (3, "the next call")):
            _require_kind(judge, records[nth], "PeerLost", what)
        waited = records[2]["ended_s"] - records[1]["ended_s"] - 0.3
        judge.at_most("seconds from abort() until the waiter is free", waited, 1.0)


@check("communicator.mismatched_shapes")
def mismatched_shapes(subject: Subject, judge: Judge) -> None:
    with _spent_ranks(subject) as ranks:
        scripts = [
            [step("all_reduce", torch.ones(64 + 960 * (rank == 1)), is_read=True)]
            for rank in range(2)
        ]
        deadlines = dict.fromkeys(PATIENT, 4.0)
        answers = play_freely(ranks, everyone(2), scripts, deadlines_s=deadlines)
        quiet = [rank for rank, answer in enumerate(answers) if _is_quiet(answer)]
        judge.require(
            len(quiet) < len(answers),
            "all_reduce of 64 elements on one rank and 1024 on the other gave results on both",
        )
        for rank, answer in enumerate(answers):
            if isinstance(answer, SubjectLost):
                judge.warn(
                    f"shapes that do not fit end the process of rank {rank}: {answer.reason}"
                )


def _is_quiet(answer: Any) -> bool:
    return isinstance(answer, list) and all(record.get("raised") is None for record in answer)
