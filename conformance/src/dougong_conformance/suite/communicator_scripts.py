"""Scripts of collectives, sent to all ranks at once, and the root cause of what comes back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.outcomes import NotRun, SubjectLost
from dougong_conformance.subject import Raised, Ranks, Subject

SIZES = (2, 3, 4)
PHASES = ("load", "warm_up", "serve")
CALL_S = 25.0
DEADLINE_S = 20.0  # of the groups, where no rank is meant to be late: the rank that is gets named
Step = dict[str, Any]
Record = Mapping[str, Any]


def pool(subject: Subject) -> Ranks:
    """As many ranks as groups are tried with, or as this machine has devices for.

    Raises:
        NotRun: Not even two.
    """
    for size in reversed(SIZES[1:]):
        try:
            return subject.ranks(size)
        except NotRun:
            continue
    return subject.ranks(SIZES[0])


def sizes_of(ranks: Ranks, judge: Judge) -> Iterator[int]:
    """Group sizes that can be tried; those that cannot are a warning."""
    for size in SIZES:
        if size <= ranks.size:
            yield size
        else:
            judge.warn(f"groups of {size} ranks were not tried: this machine has {ranks.size}")


def integers(id: str, size: int, *shape: int, dtype: str = "float32") -> list[torch.Tensor]:
    """One tensor per rank, from a seed of its own: small integers, whose sums are exact."""
    return [
        Draw(id, rank).integers(-8, 9, *shape).to(getattr(torch, dtype)) for rank in range(size)
    ]


def play(
    ranks: Ranks,
    judge: Judge,
    groups: Mapping[str, Sequence[int]],
    scripts: Sequence[Sequence[Step]],
    *,
    deadlines_s: Mapping[str, float] | None = None,
) -> list[list[Record]]:
    """Play one script per rank and judge all that has an expectation; ranks without one idle.

    Wrong values count before errors, and errors before the losses and late peers they cause.

    Args:
        ranks: At least as many as there are scripts.
        judge: Of the case.
        groups: Name → its ranks.
        scripts: Steps by rank.
        deadlines_s: Of the groups, by phase.

    Raises:
        CheckFailed: A value is wrong, or a call raised.
        SubjectLost: A rank died or never answered.
    """
    answers = play_freely(ranks, groups, scripts, deadlines_s=deadlines_s)
    for rank, answer in enumerate(answers):
        if isinstance(answer, list):
            for one, record in zip(scripts[rank], answer, strict=True):
                if record.get("raised") is None:
                    _judge_record(judge, one, record, f"rank {rank}")
    refuse_failures(answers, scripts, judge)
    return answers


def play_freely(
    ranks: Ranks,
    groups: Mapping[str, Sequence[int]],
    scripts: Sequence[Sequence[Step]],
    *,
    deadlines_s: Mapping[str, float] | None = None,
) -> list[Any]:
    """Play one script per rank; what became of each is handed over, whatever it is.

    Returns:
        By rank: the records of its steps, `Raised` or `SubjectLost`.
    """
    meeting = uuid.uuid4().hex
    own = ("right", "given_right")
    arguments = [
        {
            "meeting": meeting,
            "rank": rank,
            "groups": groups if rank < len(scripts) else {},
            "steps": [
                {name: value for name, value in one.items() if name not in own}
                for one in (scripts[rank] if rank < len(scripts) else ())
            ],
            "deadlines_s": deadlines_s or dict.fromkeys(PHASES, DEADLINE_S),
        }
        for rank in range(ranks.size)
    ]
    return ranks.call_all("communicator.run", arguments, timeout_s=CALL_S)[: len(scripts)]


def _judge_record(judge: Judge, one: Step, record: Record, where: str) -> None:
    arguments = "".join(f", {name} {value}" for name, value in one["arguments"].items())
    what = f"{one['do']}{arguments} in group {one['group']}, {where}"
    if "right" in one:
        if one["right"] is None:
            judge.require(record.get("value") is None, f"{what}: gives something, not None")
        else:
            found = record.get("value")
            judge.require(isinstance(found, torch.Tensor), f"{what}: gives {type(found).__name__}")
            judge.exact(cast("torch.Tensor", found), one["right"], what)
    if "given_right" in one:
        judge.exact(cast("torch.Tensor", record["given"]), one["given_right"], f"{what}: its input")


def refuse_failures(
    answers: Sequence[Any], scripts: Sequence[Sequence[Step]], judge: Judge
) -> None:
    """End the case with the root cause: an error before a loss, a loss before those it caused.

    Raises:
        CheckFailed: A call raised what it should not.
        SubjectLost: A rank died or never answered.
    """
    lost = [(rank, one) for rank, one in enumerate(answers) if isinstance(one, SubjectLost)]
    errors = list(_errors(answers, scripts))
    errors.sort(key=lambda one: one[1] in ("PeerLost", "CommunicatorTimeout"))  # stable
    causes = [one for one in errors if one[1] not in ("PeerLost", "CommunicatorTimeout")]
    if causes or (errors and not lost):
        rank, kind, text = (causes or errors)[0]
        judge.fail(f"rank {rank}: {text}" if kind else text)
    for rank, loss in lost:
        raise SubjectLost(f"rank {rank}: {loss.reason}", loss.outcome)


def _errors(
    answers: Sequence[Any], scripts: Sequence[Sequence[Step]]
) -> Iterator[tuple[int, str, str]]:
    for rank, answer in enumerate(answers):
        if isinstance(answer, Raised):
            yield rank, answer.kind, f"{answer.kind}: {answer.message}"
        elif not isinstance(answer, SubjectLost):
            for step, record in zip(scripts[rank], answer, strict=True):
                if (raised := record.get("raised")) is not None:
                    text = f"{step['do']} raised {raised['kind']}: {raised['message']}"
                    yield rank, raised["kind"], text


def everyone(size: int) -> dict[str, list[int]]:
    """One group of the first ``size`` ranks."""
    return {"all": list(range(size))}


def step(do: str, tensor: Any = None, *, group: str = "all", **arguments: Any) -> Step:
    """One step.

    Args:
        do: Method of the communicator, or something that the driver does.
        tensor: First argument.
        group: Whose method.
        arguments: The method's others, and: ``after`` and ``is_read`` for the driver; ``right``,
            what it must give (``None``: nothing); ``given_right``, what its first argument must be
            afterwards.
    """
    one: Step = {"do": do, "group": group, "tensor": tensor, "arguments": arguments}
    for name in ("after", "is_read", "right", "given_right"):
        if name in arguments:
            one[name] = arguments.pop(name)
    return one
