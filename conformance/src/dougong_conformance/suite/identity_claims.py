"""Claims are promises: what is claimed works, what is not claimed is refused or right."""

from __future__ import annotations

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.metric import F64, Expected
from dougong_conformance.subject import Subject, SubjectRaised

_ROWS, _INNER, _COLUMNS = 5, 48, 7
_WRONG = 1e-5  # relative to the condition sum; float32 is right to 1e-6


@check("identity.claimed_dtypes_compute", per_dtype=True)
def claimed_dtypes_compute(subject: Subject, judge: Judge, dtype: str) -> None:
    kind = getattr(torch, dtype)
    draw = Draw("identity.claimed_dtypes_compute", dtype=kind)
    x, weight = draw.normal(_ROWS, _INNER), draw.normal(_COLUMNS, _INNER, scale=_INNER**-0.5)
    try:
        found = subject.call("identity.computes", x=x, weight=weight)
    except SubjectRaised as error:
        judge.fail(f"{dtype} is claimed, and computing in it raises {error}")
    wide, w = x.to(F64), weight.to(F64)
    value = wide @ w.t()
    judge.close(
        found["product"],
        Expected(value, wide.abs() @ w.abs().t(), torch.zeros_like(value), _INNER, kind),
        name="product",
    )
    twice = 2 * wide
    judge.close(
        found["sum"], Expected(twice, twice.abs(), torch.zeros_like(twice), 1, kind), name="sum"
    )
    judge.exact(found["cast"], x.float(), "a cast to float32")


@check("identity.unclaimed_is_refused_or_right")
def unclaimed_is_refused_or_right(subject: Subject, judge: Judge) -> None:
    unclaimed = [d for d in ("float64", "bfloat16", "float16") if d not in subject.facts.dtypes]
    if not unclaimed:
        judge.warn("every dtype that could be asked for is claimed")
    for dtype in unclaimed:
        kind = getattr(torch, dtype)
        draw = Draw("identity.unclaimed_is_refused_or_right")
        x = draw.normal(_ROWS, _INNER).to(kind)
        weight = draw.normal(_COLUMNS, _INNER).to(kind)
        sizes = {
            "in_features": _INNER,
            "out_features": _COLUMNS,
            "has_bias": False,
            "dtype": dtype,
        }
        try:
            done = subject.call(
                "ops.run",
                key="linear",
                config=sizes,
                weights={"weight": weight},
                calls=[[x]],
                dtype=dtype,
            )
        except SubjectRaised:
            continue
        output = done["calls"][0]["outputs"][0]
        value, size = x.to(F64) @ weight.to(F64).t(), x.to(F64).abs() @ weight.to(F64).abs().t()
        allowed = _WRONG if dtype == "float64" else 3 * torch.finfo(kind).eps
        error = ((output.to(F64) - value).abs() / size).max().item()
        judge.at_most(f"{dtype}, which is not claimed: relative error", error, allowed)
        judge.require(
            output.dtype is kind, f"{dtype} is not claimed, and gives {output.dtype} silently"
        )


@check("identity.kv_claims_are_served")
def kv_claims_are_served(subject: Subject, judge: Judge) -> None:
    found = subject.call("identity.served")
    for what in ("kv_dtypes", "kv_block_sizes"):
        for value, backends in found[what].items():
            judge.require(
                bool(backends), f"{what} claim {value}, and no attention backend takes it"
            )
    limit = subject.facts.claims["max_head_size"]
    judge.require(
        limit is None or bool(found["max_head_size"]),
        f"max_head_size is {limit}, and no attention backend takes that size",
    )


@check("identity.graph_claim_is_served")
def graph_claim_is_served(subject: Subject, judge: Judge) -> None:
    runner = subject.call("identity.served")["graph_runner"]
    if not subject.facts.claims["graph_capture"]:
        judge.not_claimed("graph_capture is not claimed")
    judge.require(runner is not None, "graph_capture is claimed, and the platform names no runner")


@check("identity.collective_claims_are_served")
def collective_claims_are_served(subject: Subject, judge: Judge) -> None:
    found = subject.call("identity.served")
    claimed = subject.facts.claims["collective_dtypes"]
    if not claimed:
        judge.not_claimed("no dtype of collectives is claimed")
    judge.require(
        bool(found["dist_backend"]), f"collectives in {claimed} are claimed without a dist_backend"
    )


@check("identity.quantization_claims_are_served")
def quantization_claims_are_served(subject: Subject, judge: Judge) -> None:
    found = subject.call("identity.served")
    if not subject.facts.claims["quantization"] and not found["quantization"]:
        judge.not_claimed("no weight format is claimed")
    judge.require(
        not found["quantization"],
        f"formats name kernels that nothing registers: {', '.join(found['quantization'])}",
    )


@check("identity.compile_backends_exist")
def compile_backends_exist(subject: Subject, judge: Judge) -> None:
    claimed = list(subject.facts.claims["compile_backends"])
    if not claimed:
        judge.not_claimed("no backend of torch.compile is claimed")
    unknown = subject.call("identity.unknown_compile_backends", names=claimed)
    judge.require(not unknown, f"torch.compile knows no backend {', '.join(unknown)}")
