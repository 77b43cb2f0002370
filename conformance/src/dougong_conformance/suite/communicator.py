"""Collectives: right on every rank, for every size of group; expected values need no collective."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.metric import HALF_ULP
from dougong_conformance.subject import Subject
from dougong_conformance.suite.communicator_scripts import (
    PHASES,
    Step,
    everyone,
    integers,
    play,
    play_freely,
    pool,
    sizes_of,
    step,
)

Tensors = Sequence[torch.Tensor]


def _total(given: Tensors) -> torch.Tensor:
    return torch.stack(list(given)).sum(0, dtype=given[0].dtype)


def _judge_sums(
    subject: Subject, judge: Judge, name: str, shapes: Sequence[tuple[int, ...]]
) -> None:
    """`all_reduce` of every shape, in groups of every size."""
    ranks = pool(subject)
    for size in sizes_of(ranks, judge):
        given = [integers(f"{name}.{shape}", size, *shape) for shape in shapes]
        play(
            ranks,
            judge,
            everyone(size),
            [
                [step("all_reduce", one[rank], right=_total(one)) for one in given]
                for rank in range(size)
            ],
        )


@check("communicator.sums")
def sums(subject: Subject, judge: Judge) -> None:
    _judge_sums(subject, judge, "communicator.sums", [(4, 16), (1, 64), (2, 3, 8)])


@check("communicator.odd_sizes")
def odd_sizes(subject: Subject, judge: Judge) -> None:
    _judge_sums(subject, judge, "communicator.odd_sizes", [(1,), (7, 5), (1027,), (0, 4)])


@check("communicator.inputs_stay")
def inputs_stay(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    size = ranks.size
    even = [1] * size

    def script(mine: torch.Tensor) -> list[Step]:
        return [
            step("all_reduce", mine, given_right=mine),
            step("all_gather", mine, dim=0, given_right=mine),
            step("reduce_scatter", mine, dim=0, given_right=mine),
            step("reduce_scatter_v", mine, sizes=even, given_right=mine),
            step("gather", mine, dst=0, dim=0, given_right=mine),
            step("all_to_all", mine, given_right=mine),
            step("all_to_all_v", mine, send_sizes=even, recv_sizes=even, given_right=mine),
        ]

    given = integers("communicator.inputs_stay", size, size, 6)
    play(ranks, judge, everyone(size), [script(mine) for mine in given])


@check("communicator.subgroups")
def subgroups(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    if ranks.size < 3:
        judge.not_run("a part of a group of three needs three ranks")
    given = integers("communicator.subgroups", 3, 8)
    both = [given[0], given[2]]
    last = [step("all_reduce", mine, right=_total(given)) for mine in given]

    def script(rank: int) -> list[Step]:
        mine = given[rank]
        if rank == 1:
            return [step("all_reduce", mine, group="other", right=mine), last[rank]]
        return [
            step("all_reduce", mine, group="some", right=_total(both)),
            step("all_gather", mine, group="some", dim=0, right=torch.cat(both)),
            step("broadcast", mine, group="some", src=1, right=given[2]),
            last[rank],
        ]

    groups = {"all": [0, 1, 2], "some": [0, 2], "other": [1]}
    play(ranks, judge, groups, [script(rank) for rank in range(3)])


@check("communicator.gathers")
def gathers(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    for size in sizes_of(ranks, judge):
        given = integers("communicator.gathers", size, 2, 3, 4)
        rows, last = [0, 2, 1, 2][:size], size - 1
        uneven = torch.cat([mine[:count] for mine, count in zip(given, rows, strict=True)])
        scripts = [
            [
                *(
                    step("all_gather", mine, dim=dim, right=torch.cat(given, dim))
                    for dim in (0, 1, 2, -1)
                ),
                step("all_gather_v", mine[: rows[rank]], sizes=rows, right=uneven),
                step(
                    "gather",
                    mine,
                    dst=last,
                    dim=1,
                    right=torch.cat(given, 1) if rank == last else None,
                ),
            ]
            for rank, mine in enumerate(given)
        ]
        play(ranks, judge, everyone(size), scripts)


@check("communicator.reduce_scatters")
def reduce_scatters(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    for size in sizes_of(ranks, judge):
        given = integers("communicator.reduce_scatters", size, size, 5, 2 * size)
        rows = [1, 0, 2, 1][:size]
        rows[-1] += size - sum(rows)
        total = _total(given)
        uneven = torch.split(total, rows)
        scripts = [
            [
                step("reduce_scatter", mine, dim=0, right=total.chunk(size, 0)[rank]),
                step("reduce_scatter", mine, dim=-1, right=total.chunk(size, -1)[rank]),
                step("reduce_scatter_v", mine, sizes=rows, right=uneven[rank]),
            ]
            for rank, mine in enumerate(given)
        ]
        play(ranks, judge, everyone(size), scripts)


@check("communicator.broadcasts")
def broadcasts(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    for size in sizes_of(ranks, judge):
        given = integers("communicator.broadcasts", size, 5)
        scripts = [
            [
                step("broadcast", mine, src=src, right=sent, given_right=sent)
                for src, sent in enumerate(given)
            ]
            for mine in given
        ]
        play(ranks, judge, everyone(size), scripts)


@check("communicator.exchanges")
def exchanges(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    for size in sizes_of(ranks, judge):
        given = integers("communicator.exchanges", size, 2 * size, 3)
        counts = [[(2 * giver + taker) % 3 for taker in range(size)] for giver in range(size)]
        cut = [mine[: sum(row)] for mine, row in zip(given, counts, strict=True)]
        even = [torch.split(mine, 2) for mine in given]
        uneven = [torch.split(mine, row) for mine, row in zip(cut, counts, strict=True)]
        scripts = [
            [
                step("all_to_all", given[rank], right=torch.cat([one[rank] for one in even])),
                step(
                    "all_to_all_v",
                    cut[rank],
                    send_sizes=counts[rank],
                    recv_sizes=[row[rank] for row in counts],
                    right=torch.cat([one[rank] for one in uneven]),
                ),
            ]
            for rank in range(size)
        ]
        play(ranks, judge, everyone(size), scripts)


@check("communicator.pairs")
def pairs(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    for size in sizes_of(ranks, judge):
        given = integers("communicator.pairs", size, 3, 4)
        scripts = []
        for rank, mine in enumerate(given):
            to, of = (rank + 1) % size, (rank - 1) % size
            sends = [step("send", mine * nth, dst=to) for nth in (1, 2)]
            receives = [
                step("recv", shape=[3, 4], dtype="float32", src=of, right=given[of] * nth)
                for nth in (1, 2)
            ]
            # The last rank receives first: a library may hold a sender until it is taken.
            scripts.append([*receives, *sends] if rank == size - 1 else [*sends, *receives])
        play(ranks, judge, everyone(size), scripts)


@check("communicator.numerics")
def numerics(subject: Subject, judge: Judge) -> None:
    takes = _dtypes(subject, ["all_reduce", "reduce_scatter"])
    taken = [one for one in subject.facts.dtypes if all(one in dtypes for dtypes in takes.values())]
    judge.require(bool(taken), f"sums take none of {', '.join(subject.facts.dtypes)}")
    for dtype in taken:
        _judge_rounding(subject, judge, dtype)


def _judge_rounding(subject: Subject, judge: Judge, dtype: str) -> None:
    ranks = pool(subject)
    kind = getattr(torch, dtype)
    for size in sizes_of(ranks, judge):
        given = _drawn("communicator.numerics", size, kind, 12 * size, 32)
        scripts = [
            [step("all_reduce", mine), step("reduce_scatter", mine, dim=0)] for mine in given
        ]
        answers = play(ranks, judge, everyone(size), scripts)
        for rank, records in enumerate(answers):
            parts = [one.chunk(size)[rank] for one in given]
            where = f"of {dtype}, {size} ranks"
            _judge_sum(judge, f"all_reduce {where}", records[0]["value"], given)
            _judge_sum(judge, f"reduce_scatter {where}", records[1]["value"], parts)


def _drawn(id: str, size: int, dtype: torch.dtype, *shape: int) -> list[torch.Tensor]:
    return [Draw(id, rank, dtype).normal(*shape) for rank in range(size)]


def _judge_sum(judge: Judge, name: str, found: torch.Tensor, given: Tensors) -> None:
    """Each of the ``size - 1`` additions may round to the dtype, and the result once more."""
    exact = torch.stack([one.double() for one in given])
    total, magnitude = exact.sum(0), exact.abs().sum(0)
    judge.require(
        found.dtype is given[0].dtype and found.shape == total.shape,
        f"{name} gives {found.dtype} {list(found.shape)}",
    )
    allowed = HALF_ULP[found.dtype] * (total.abs() + (len(given) - 1) * magnitude)
    error = ((found.double() - total).abs() / allowed).max().item()
    judge.at_most(f"{name}: error over the rounding of each addition", error, 1.0)


@check("communicator.dtypes")
def dtypes(subject: Subject, judge: Judge) -> None:
    ops = ["all_reduce", "all_gather", "broadcast", "reduce_scatter", "all_to_all"]
    takes = _dtypes(subject, ops)
    claims = subject.facts.claims
    for dtype in claims.get("collective_dtypes") or claims["dtypes"]:
        missing = [op for op in ops if dtype not in takes[op]]
        judge.require(not missing, f"{dtype} is claimed for collectives; {missing} do not take it")
    ranks = pool(subject)
    plan = [
        (op, dtype)
        for op in ops
        for dtype in ("float32", "bfloat16", "float16", "int64", "int32", "uint8", "complex64")
    ]
    given = {dtype: integers("communicator.dtypes", 2, 2, 3, dtype=dtype) for _, dtype in plan}
    scripts = [[step(op, given[dtype][rank]) for op, dtype in plan] for rank in range(2)]
    answers = play_freely(ranks, everyone(2), scripts)
    for rank, records in enumerate(answers):
        judge.require(isinstance(records, list), f"rank {rank}: {records}")
        for (op, dtype), record in zip(plan, records, strict=True):
            raised = record.get("raised")
            if dtype in takes[op]:
                judge.require(raised is None, f"{op} of {dtype}, which it takes, raised {raised}")
                kind = record["value"].dtype
                judge.require(
                    kind is getattr(torch, dtype), f"{op} of {dtype} gives {kind} on rank {rank}"
                )
            else:
                judge.require(
                    raised is not None and "UnsupportedError" in raised["kinds"],
                    f"{op} of {dtype}, which it does not take, "
                    + ("gave a result" if raised is None else f"raised {raised['kind']}")
                    + "; UnsupportedError is expected",
                )


def _dtypes(subject: Subject, ops: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = subject.call("communicator.dtypes", ops=ops)
    return found


@check("communicator.not_contiguous")
def not_contiguous(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    given = integers("communicator.not_contiguous", 2, 6, 4)
    turned = [{"base": mine, "transposed": [0, 1]} for mine in given]
    scripts = [
        [step("all_reduce", one), step("all_gather", one, dim=0), step("all_reduce", mine)]
        for one, mine in zip(turned, given, strict=True)
    ]
    answers = play_freely(ranks, everyone(2), scripts)
    right = [_total(given).t(), torch.cat([mine.t() for mine in given]), _total(given)]
    for rank, records in enumerate(answers):
        judge.require(isinstance(records, list), f"rank {rank}: {records}")
        for index, (record, expected) in enumerate(zip(records, right, strict=True)):
            do = scripts[rank][index]["do"]
            if (raised := record.get("raised")) is None:
                what = f"{do} of a transposed tensor on rank {rank}"
                judge.exact(record["value"], expected, what)
            else:
                judge.require(
                    index < 2 and "UnsupportedError" in raised["kinds"],
                    f"{do} raised {raised['kind']}: {raised['message']}",
                )


@check("communicator.two_groups")
def two_groups(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    if ranks.size < 3:
        judge.not_run("groups that share single ranks need three ranks")
    groups = {"a": [0, 1], "b": [1, 2], "c": [0, 2]}
    given = integers("communicator.two_groups", 3, 9)
    right = {name: 2 * _total([given[one] for one in members]) for name, members in groups.items()}
    scripts = [
        [
            step("all_reduce", mine, group=name, after=2, right=right[name])
            for _ in range(3)
            for name, members in groups.items()
            if rank in members
        ]
        for rank, mine in enumerate(given)
    ]
    play(ranks, judge, groups, scripts, deadlines_s=dict.fromkeys(PHASES, 5.0))


@check("communicator.barrier")
def barrier(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    for size in sizes_of(ranks, judge):
        late = size - 1
        scripts = [
            [
                step("barrier"),
                step("sleep", seconds=0.2 if rank == late else 0.0),
                step("barrier"),
            ]
            for rank in range(size)
        ]
        answers = play(ranks, judge, everyone(size), scripts)
        arrived = answers[late][2]["began_s"]
        for rank, records in enumerate(answers):
            early = arrived - records[2]["ended_s"]
            judge.require(
                early <= 0, f"rank {rank} left a barrier {early:.3f} s before rank {late} came"
            )


@check("communicator.stream_order")
def stream_order(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    given = integers("communicator.stream_order", 2, 64)
    total, joined = _total(given), torch.cat(given)
    scripts = [
        [
            step("all_reduce", mine, after=3, right=3 * total),
            step("all_gather", mine, after=3, dim=0, right=3 * joined),
            step("reduce_scatter", mine, after=3, dim=0, right=3 * total.chunk(2)[rank]),
        ]
        for rank, mine in enumerate(given)
    ]
    play(ranks, judge, everyone(2), scripts)


@check("communicator.suspends")
def suspends(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    given = integers("communicator.suspends", 2, 5)
    scripts = [
        [
            step("all_reduce", mine, right=_total(given)),
            step("suspend"),
            step("resume"),
            step("all_reduce", mine, right=_total(given)),
        ]
        for mine in given
    ]
    play(ranks, judge, everyone(2), scripts)


@check("communicator.destroys")
def destroys(subject: Subject, judge: Judge) -> None:
    ranks = pool(subject)
    scripts = [[step("barrier"), step("destroy"), step("destroy")] for _ in range(2)]
    play(ranks, judge, everyone(2), scripts)
