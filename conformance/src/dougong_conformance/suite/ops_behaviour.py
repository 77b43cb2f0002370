"""Checks of what ops do beside the numbers: what they read, write, copy, refuse and keep."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.metric import SMALLEST_NORMAL, normalised_error
from dougong_conformance.kit.place import shifted, within
from dougong_conformance.subject import Subject, SubjectRaised
from dougong_conformance.suite.op_kinds import KINDS
from dougong_conformance.suite.op_under_test import (
    BATCH_INVARIANT,
    FLUSHES,
    NATIVE,
    OpUnderTest,
    Way,
    flushes,
)

_IN_EVERY_STEP = (
    "rms_norm",
    "fused_add_rms_norm",
    "silu_and_mul",
    "linear",
    "gate_up_act",
    "rotary_embedding",
    "qkv_norm_rope",
    "embedding",
    "lm_head",
    "greedy_sample",
    "logprobs",
)
_OWN_RULES = ("top_k_top_p", "quantize", "dequantize")
"""Every implementation of these is run by checks of their profiles."""
_NEW_SHAPES = (5, 9, 10, 11, 12, 14, 15)
_SLOWER = 5.0
_SLACK_S = 0.02


@check("ops.nonfinite", per_dtype=True)
def nonfinite(subject: Subject, judge: Judge, dtype: str) -> None:
    """NaN and infinity spoil their own row, and nothing hides them."""
    for key, sizes in (
        ("rms_norm", {"hidden_size": 64}),
        ("silu_and_mul", {"width": 16}),
        ("linear", {"in_features": 64, "out_features": 8}),
        ("gate_up_act", {"hidden_size": 32, "intermediate_size": 16}),
        ("lm_head", {"hidden_size": 32, "vocab_size": 17}),
    ):
        op = OpUnderTest(subject, judge, key, dtype, id="ops.nonfinite", **sizes)
        (x,) = op.arguments(4)
        x[1, 3] = torch.nan
        calls = [[x]]
        if key == "linear":
            spread = x.clone()
            spread[2, 5] = torch.inf
            calls.append([spread])
        op.check_calls(calls)


@check("ops.strided", per_dtype=True)
def strided(subject: Subject, judge: Judge, dtype: str) -> None:
    """Queries and keys are slices of a wider tensor, as a split projection gives them."""
    for index, sizes in enumerate(
        (
            {"head_dim": 32, "rotary_dim": 32, "states_heads": True},
            {"head_dim": 64, "rotary_dim": 16, "num_heads": 2, "num_kv_heads": 1},
        )
    ):
        op = OpUnderTest(
            subject, judge, "rotary_embedding", dtype, id="ops.strided", index=index, **sizes
        )
        _check_placed(op, (1, 3, 8), lambda x: within(x, 1, 1, 2))


@check("ops.memory_bounds", per_dtype=True)
def memory_bounds(subject: Subject, judge: Judge, dtype: str) -> None:
    """Memory around what is passed stays as it is, at any alignment of the pointers."""
    for key in ("rotary_embedding", "fused_add_rms_norm", "rms_norm", "silu_and_mul", "linear"):
        op = OpUnderTest(subject, judge, key, dtype, id="ops.memory_bounds")
        _check_placed(op, (3,), lambda x: within(x, 0, 2, 2))
        _check_placed(op, (7,), shifted)


@check("ops.no_hidden_copies", per_dtype=True)
def no_hidden_copies(subject: Subject, judge: Judge, dtype: str) -> None:
    """No trip to the host, no wait, no cast of a whole weight in what runs in every step."""
    for key in _IN_EVERY_STEP:
        op = OpUnderTest(subject, judge, key, dtype, id="ops.no_hidden_copies")
        calls = [op.arguments(count) for count in (2, 2, 3)]
        for way in op.ways():
            taken = [one for one in calls if way.takes(one[0].shape[0])]
            for call in op.run(way, taken)[1:]:
                for name, what in (
                    ("to_host", "copies to the host"),
                    ("from_host", "copies from the host"),
                    ("syncs", "waits for the device"),
                    ("weight_casts", "casts of a whole weight"),
                ):
                    count = call["copies"][name]
                    judge.require(
                        count == 0, f"{key} by {way} in {dtype} made {count} {what} in one call"
                    )


@check("ops.changing_shapes", per_dtype=True)
def changing_shapes(subject: Subject, judge: Judge, dtype: str) -> None:
    """After a few sizes, a step of a new size costs no compilation."""
    for key in ("linear", "rms_norm", "silu_and_mul"):
        op = OpUnderTest(subject, judge, key, dtype, id="ops.changing_shapes")
        seen = [op.arguments(count) for count in (1, 2, 4, 8, 16)]
        new = [op.arguments(count) for count in _NEW_SHAPES]
        try:
            times = subject.call(
                "ops.times",
                key=key,
                config=op.config,
                weights=op.weights,
                warm_up=seen * 2,
                calls=[*seen, *new],
                dtype=dtype,
            )
        except SubjectRaised as exc:
            op.raised(op.ways()[0], exc)
        usual = statistics.median(times[: len(seen)])
        judge.at_most(
            f"{key}: seconds of a call with a new number of tokens",
            statistics.median(times[len(seen) :]),
            _SLOWER * usual + _SLACK_S,
        )


@check("ops.subnormals", per_dtype=True)
def subnormals(subject: Subject, judge: Judge, dtype: str) -> None:
    """What only moves or adds numbers keeps the smallest ones, unless flushing is declared."""
    if flushes(subject, dtype):
        judge.not_claimed(f"the device says that it flushes subnormals of {dtype} ({FLUSHES})")
    smallest = SMALLEST_NORMAL[getattr(torch, dtype)]
    op = OpUnderTest(subject, judge, "fused_add_rms_norm", dtype, id="ops.subnormals")
    x, residual = (one * (smallest / 8) for one in op.arguments(3))
    for way in op.ways():
        for call in op.run(way, [[x, residual]]):
            total = (x.double() + residual.double()).to(x.dtype)
            judge.exact(call["outputs"][1], total, f"residual by {way} of subnormal numbers")
    table = OpUnderTest(subject, judge, "embedding", dtype, id="ops.subnormals")
    table.weights["weight"].mul_(smallest / 8)
    table.check((4,))


@check("ops.every_implementation")
def every_implementation(subject: Subject, judge: Judge) -> None:
    """Each registered implementation, at sizes that its conditions accept."""
    for one in subject.facts.implementations:
        key, name = one["key"], one["name"]
        if key not in KINDS or key in _OWN_RULES:
            continue
        tried = 0
        for sizes in _sizes_for(subject, key, name):
            for dtype in subject.facts.dtypes:
                op = OpUnderTest(subject, judge, key, dtype, id="ops.every_implementation", **sizes)
                if any(way.name == name for way in op.ways()):
                    op.check((1, 3, 8))
                    tried += 1
        if not tried:
            judge.warn(f"{key} by {name} ran nowhere: no size that was tried meets {one['when']}")


@check("ops.unclaimed_dtype")
def unclaimed_dtype(subject: Subject, judge: Judge) -> None:
    """A dtype that is not claimed is refused, or right; never quietly wrong."""
    for dtype in ("float32", "float16", "bfloat16"):
        if dtype in subject.facts.dtypes:
            continue
        for key in ("linear", "rms_norm"):
            _refused_or_right(
                OpUnderTest(subject.fresh(), judge, key, dtype, id="ops.unclaimed_dtype")
            )
    # Made for one dtype and given another: the conditions of the op do not see it. A device may not
    # survive what it finds out late, so it is asked in a process of its own.
    dtypes = subject.facts.dtypes
    narrow = next((one for one in ("bfloat16", "float16") if one in dtypes), dtypes[0])
    alone = subject.fresh()
    for key in ("linear", "rms_norm"):
        op = OpUnderTest(alone, judge, key, narrow, id="ops.unclaimed_dtype")
        _refused_or_right(op, given=torch.float64)


@check("ops.batch_invariance", per_dtype=True)
def batch_invariance(subject: Subject, judge: Judge, dtype: str) -> None:
    """Where it is claimed, a row has the same bits alone and among others."""
    names = {BATCH_INVARIANT, f"{BATCH_INVARIANT}.{dtype}"}
    is_claimed = not names.isdisjoint(subject.facts.features)
    for key in ("linear", "rms_norm", "gate_up_act", "lm_head"):
        if not is_claimed:
            break
        op = OpUnderTest(subject, judge, key, dtype, id="ops.batch_invariance")
        (rows,) = op.arguments(33)
        alone = [[rows[at : at + 1]] for at in (0, 13, 32)]
        # What a plan binds, which may be another implementation for one row than for many.
        first, *others = op.run(Way(""), [[rows], *alone])
        for at, one in zip((0, 13, 32), others, strict=True):
            judge.exact(
                one["outputs"][0],
                first["outputs"][0][at : at + 1],
                f"{key} of row {at} alone, in {dtype}, and batch invariance is claimed; it",
            )
    if not is_claimed:
        judge.not_claimed(f"batch invariance is not claimed in {dtype}")


@check("ops.tied_table", per_dtype=True)
def tied_table(subject: Subject, judge: Judge, dtype: str) -> None:
    """A head that shares the embedding's table, both bound as a plan binds them."""
    head = OpUnderTest(subject, judge, "lm_head", dtype, id="ops.tied_table")
    table = OpUnderTest(subject, judge, "embedding", dtype, id="ops.tied_table", hidden_size=64)
    weight = head.weights["weight"]
    ids = [table.arguments(count)[0] for count in (1, 3)]
    hidden = [head.arguments(count)[0] for count in (1, 3)]
    try:
        answer = subject.call(
            "ops.run_tied", config=head.config, weight=weight, ids=ids, hidden=hidden, dtype=dtype
        )
    except SubjectRaised as exc:
        head.raised(head.ways()[0], exc)
    for given, rows in zip(ids, answer["rows"], strict=True):
        judge.exact(rows, weight[given], "rows of a tied table")
    for given, logits in zip(hidden, answer["logits"], strict=True):
        (expected,) = head.expected([given])
        if not isinstance(expected, torch.Tensor):
            judge.close(logits, expected, name="lm_head of a tied table")


def _check_placed(op: OpUnderTest, tokens: tuple[int, ...], placing: Any) -> None:
    """The same numbers as parts of wider tensors; plain results are expected."""
    plain = [op.arguments(count) for count in tokens]
    calls = [
        [
            placing(one) if isinstance(one, torch.Tensor) and one.dtype is op.draw.dtype else one
            for one in arguments
        ]
        for arguments in plain
    ]
    for way in op.ways():
        taken = [index for index, count in enumerate(tokens) if way.takes(count)]
        done = op.run(way, [calls[index] for index in taken])
        for index, call in zip(taken, done, strict=True):
            op.compare(way, plain[index], call, op.expected(plain[index]))


def _refused_or_right(op: OpUnderTest, given: torch.dtype | None = None) -> None:
    (x,) = op.arguments(3)
    x = x.double() * (1 + 2.0**-30) if given is torch.float64 else x
    for way in op.ways():
        if way.name == NATIVE:
            continue  # plain torch is not the plugin's
        try:
            (call,) = op.ask(
                "ops.run",
                key=op.kind.key,
                config=op.config,
                weights=op.weights,
                calls=[[x]],
                dtype=op.dtype,
                implementation=way.name,
            )["calls"]
        except SubjectRaised:
            continue
        (expected,) = op.expected([x])
        actual = call["outputs"][0]
        if isinstance(expected, torch.Tensor):
            continue
        # What is wider than any claimed dtype must at least be computed as float32 would be.
        law = replace(expected, dtype=torch.float32) if given is torch.float64 else expected
        error = float(normalised_error(actual, law).max())
        told = str(x.dtype).removeprefix("torch.")
        op.judge.at_most(f"{op.kind.key}, given {told} and not refusing: max error", error, 3.0)


_IN_PAIRS = frozenset({"head_dim", "rotary_dim"})
"""Sizes whose elements are rotated two by two."""


def _sizes_for(subject: Subject, key: str, name: str) -> list[dict[str, Any]]:
    """The smallest sizes that an implementation accepts, and some larger ones."""
    usual = KINDS[key].sizes
    numbers = [*range(1, 513), *range(576, 8193, 64)]
    asked: dict[str, list[Any]] = {
        prop: [value, *(number for number in numbers if prop not in _IN_PAIRS or number % 2 == 0)]
        if isinstance(value, int) and not isinstance(value, bool)
        else [value]
        for prop, value in usual.items()
    }
    asked |= {
        "has_bias": [False, True],
        "is_neox": [True, False],
        "renormalize": [True, False],
        "approximate": ["tanh", "none"],
        "activation": ["silu", "gelu", "gelu_pytorch_tanh"],
    }
    asked |= {"is_tied": [False], "weight_format": list(subject.facts.dtypes), "has_norm": [False]}
    answer = subject.call("ops.accepted", key=key, name=name, candidates=asked)
    found = [
        _coherent(
            {**usual, **{prop: values[min(at, len(values) - 1)] for prop, values in answer.items()}}
        )
        for at in (0, 1)
        if all(answer.values())
    ]
    return found if len(found) < 2 or found[0] != found[1] else found[:1]


def _coherent(sizes: dict[str, Any]) -> dict[str, Any]:
    """Sizes that were picked one by one, made to fit one another."""
    fitted = dict(sizes)
    for small, large in (("rotary_dim", "head_dim"), ("top_k", "num_experts")):
        if small in fitted and large in fitted:
            fitted[small] = min(fitted[small], fitted[large])
    if {"num_heads", "num_kv_heads"} <= fitted.keys() and fitted["num_heads"] % fitted[
        "num_kv_heads"
    ]:
        fitted["num_heads"] = fitted["num_kv_heads"]
    return fitted
