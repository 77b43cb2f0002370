"""Runs that never took place, as real ones look: passing, failing in every way, and empty."""

from __future__ import annotations

import math
import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dougong_conformance.judging import Metric
from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.report.tally import is_failure
from dougong_conformance.requirements import PROFILES, Level, Requirement
from dougong_conformance.results import (
    CaseResult,
    CoreVerdict,
    Footer,
    Header,
    PluginIdentity,
    ProfileSummary,
    ProfileVerdict,
    RunRecord,
    Selection,
    outcomes_digest,
    results_digest,
)

DTYPES = ("float32", "bfloat16", "float16")

_SPEC = tomllib.loads(Path(__file__).with_name("made_up_spec.toml").read_text("utf-8"))
PER_DTYPE = frozenset(row["id"] for row in _SPEC["row"] if row["per_dtype"])


def requirements() -> dict[str, Requirement]:
    """A specification."""
    rows = [_requirement(row) for row in _SPEC["row"]]
    rows += [Requirement(**row, is_provisional=True) for row in _SPEC["provisional"]]
    order = {name: index for index, name in enumerate(PROFILES)}
    return {one.id: one for one in sorted(rows, key=lambda one: order[one.profile])}


def _requirement(row: Mapping[str, Any]) -> Requirement:
    id = row["id"]
    url = "https://github.com/vllm-project/vllm-ascend/issues/13699"
    return Requirement(
        id=id,
        title=row["title"],
        text=row["text"],
        capability=row["capability"],
        kills=tuple(row["kills"]),
        because=(url,) if id == "attention.decode" else (),
        level=Level.SHOULD if id == "performance.no_host_copies" else Level.MUST,
        is_smoke=id.endswith(("linear", "decode", "uuid")),
    )


def case_ids(dtypes: Iterable[str] = DTYPES) -> Iterator[tuple[Requirement, str]]:
    """Cases of a plugin that claims these dtypes."""
    for one in requirements().values():
        if one.is_provisional:
            continue
        for dtype in dtypes if one.id in PER_DTYPE else ("",):
            yield one, dtype


def header(**changes: object) -> Header:
    """Of a simulated device."""
    made = Header(
        mode="certify",
        suite_version="1.0.20261130",
        suite_sha256="5" * 64,
        spec_version="1.0",
        core_version="0.1.0",
        contract_version="1.0",
        plugin=PluginIdentity(
            name="sim", distribution="dougong-sim", version="0.1.0", record_sha256="a" * 64
        ),
        claims={"dtypes": list(DTYPES), "features": ["device.double", "attention.sliding_window"]},
        devices=tuple(
            {"index": n, "name": f"Simulated device {n}", "arch": "sim1", "memory_bytes": 1 << 30}
            for n in range(2)
        ),
        versions={"driver": "sim 0.1.0", "simccl": "1"},
        torch="2.13.0+cpu",
        python="3.11.2",
        machine="Linux 6.1 x86_64, 2 processors",
        environment={"PATH": "/usr/bin:/bin", "HOME": "/home/vendor", "SIM_DEVICE_COUNT": "8"},
        patches=(),
        registrations=("torch.sim (module)",),
        seeds={"fixed": "1.0.20261130"},
        limits={"case_s": 30.0, "load_s": 60.0},
        repeats=3,
        started="2026-11-30T10:00:00Z",
        is_double=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # any field


def without_runtime(record: RunRecord) -> RunRecord:
    """The same run on a double whose runtime is another platform's."""
    features = ["device.double", "device.double.replaced_runtime"]
    claims = {**record.header.claims, "features": features}
    facts = {**record.header.facts, "device_type": "sim"}
    return replace(record, header=replace(record.header, claims=claims, facts=facts))


def result(
    one: Requirement, dtype: str, outcome: Outcome = Outcome.PASS, **more: object
) -> CaseResult:
    """How a case ended."""
    case = f"{one.id}[{dtype}]" if dtype else one.id
    made = CaseResult(
        id=case,
        requirement=one.id,
        profile=one.profile,
        level=one.level,
        dtype=dtype,
        outcome=outcome,
        measured=outcome,
        capability=one.capability,
        is_provisional=one.is_provisional,
        metrics=tuple(_metrics(one, dtype)),
        ms=40 + 7.5 * len(case),
        log="logs/executor-1.txt",
        repro=f"dougong-conform repro out '{case}'",
    )
    return replace(made, **more)  # type: ignore[arg-type]  # any field


def _metrics(one: Requirement, dtype: str) -> Iterator[Metric]:
    draw = random.Random(f"{one.id} {dtype}")
    if one.profile in {"ops", "attention", "quantization", "lora", "communicator"} and dtype:
        yield Metric("max error", round(draw.uniform(0.05, 1.2), 3), 3.0)
        if one.id == "ops.rounding_bias":
            yield Metric("bias", round(draw.uniform(0.005, 0.03), 4), 0.12)
    elif one.id == "sampling.distribution":
        yield Metric("total variation", 0.0183, 0.045)
    elif one.profile == "performance":
        yield Metric("share of the kernel's time", round(draw.uniform(0.001, 0.05), 4), 0.2)
    elif one.id == "memory.accounting":
        yield Metric("MiB beside 256", 0.0, 2.0)


def record(
    results: Iterable[CaseResult], head: Header | None = None, **changes: object
) -> RunRecord:
    """A run with a footer that fits its results."""
    rows = tuple(results)
    head = head or header()
    required = tuple(f"{one.id}[{dtype}]" if dtype else one.id for one, dtype in case_ids())
    missing = tuple(sorted(set(required) - {row.id for row in rows}))
    counted = [row for row in rows if not row.is_provisional]
    footer = Footer(
        counts=dict(sorted(Counter(row.outcome.value for row in rows).items())),
        required=required,
        missing=missing,
        profiles=dict(_profiles(counted, required, missing)),
        digest=results_digest(rows),
        outcomes_digest=outcomes_digest(rows),
        finished="2026-11-30T10:01:52Z",
        wall_s=112.4,
        **_verdict(counted, missing),  # type: ignore[arg-type]  # three fields
    )
    footer = replace(footer, **changes)  # type: ignore[arg-type]  # any field
    return RunRecord(header=head, results=rows, footer=footer)


def _verdict(rows: list[CaseResult], missing: tuple[str, ...]) -> dict[str, object]:
    core = {row.outcome for row in rows if not row.capability and row.level is Level.MUST}
    bad = sum(map(is_failure, rows))
    if core & BAD or Outcome.WAIVER_VIOLATION in core:
        verdict = CoreVerdict.NOT_CONFORMANT
    elif missing or Outcome.NOT_RUN in core:
        verdict = CoreVerdict.INCOMPLETE
    else:
        is_waived = Outcome.WAIVED in core
        verdict = CoreVerdict.CONFORMANT_WITH_WAIVERS if is_waived else CoreVerdict.CONFORMANT
    if any(row.outcome is Outcome.WAIVER_VIOLATION for row in rows):
        return {
            "core": verdict,
            "exit_code": 6,
            "exit_reason": "a waiver does not hold; see out/report.md#waivers",
        }
    if bad:
        return {
            "core": verdict,
            "exit_code": 1,
            "exit_reason": f"{bad} cases failed; see out/report.html",
        }
    if missing or any(row.outcome is Outcome.NOT_RUN for row in rows):
        return {
            "core": verdict,
            "exit_code": 3,
            "exit_reason": f"{len(missing)} required checks without a result",
        }
    return {"core": verdict, "exit_code": 0, "exit_reason": ""}


def _profiles(
    rows: list[CaseResult], required: tuple[str, ...], missing: tuple[str, ...]
) -> Iterator[tuple[str, ProfileSummary]]:
    for name in PROFILES:
        mine = [row for row in rows if row.profile == name]
        outcomes = Counter(row.outcome.value for row in mine)
        gone = sum(one.startswith(f"{name}.") for one in missing)
        if any(map(is_failure, mine)):
            verdict = ProfileVerdict.FAILED
        elif gone or outcomes["not_run"]:
            verdict = ProfileVerdict.INCOMPLETE
        elif mine and all(row.outcome is Outcome.NOT_CLAIMED for row in mine):
            verdict = ProfileVerdict.NOT_CLAIMED
        else:
            verdict = ProfileVerdict.PASSED
        yield (
            name,
            ProfileSummary(
                verdict=verdict,
                required=sum(one.startswith(f"{name}.") for one in required),
                outcomes=dict(sorted(outcomes.items())),
                missing=gone,
                provisional=sum(one["id"].startswith(f"{name}.") for one in _SPEC["provisional"]),
            ),
        )


_NOT_CLAIMED = {"attention.sinks", "ops.moe_route"}


def passing(head: Header | None = None) -> RunRecord:
    """Every case passed, and two capabilities are not claimed."""
    rows = []
    for one, dtype in case_ids():
        if one.id in _NOT_CLAIMED:
            reason = f"{one.capability} is not claimed, and asking for it raises UnsupportedError"
            rows.append(result(one, dtype, Outcome.NOT_CLAIMED, reason=reason, metrics=()))
        else:
            rows.append(result(one, dtype))
    rows[3] = replace(rows[3], warnings=("uuid is not stable over a reboot of the simulator",))
    return record(rows, head)


_STORY: Mapping[str, dict[str, object]] = {
    "ops.linear[bfloat16]": {
        "outcome": Outcome.FAIL,
        "reason": "linear [17, 1000] x [33, 1000]: max error is 31.4; at most 3 is allowed; first "
        "at [3, 7]: -0.4219 on the device, -0.3984 expected",
        "metrics": (Metric("max error", 31.4, 3.0), Metric("rms error", 8.82)),
        "traceback": 'Traceback (most recent call last):\n  File "suite/ops.py", line 88, in '
        "linear\n"
        "CheckFailed: max error is 31.4; at most 3 is allowed\n",
    },
    "ops.rotary[float16]": {
        "outcome": Outcome.FAIL,
        "reason": "rotary_dim 32 of 64: dims 32 to 63 are rotated too; first at [0, 2, 32]",
        "metrics": (Metric("max error", math.inf, 3.0),),
    },
    "attention.decode[bfloat16]": {
        "outcome": Outcome.CRASH,
        "reason": "the process with the plugin ended with signal 11 (SIGSEGV) during attention.run",
        "metrics": (),
        "traceback": "Fatal Python error: Segmentation fault\n\nCurrent thread (most recent call "
        'first):\n  File "dougong_sim/attention.py", line 131 in forward\n',
    },
    "attention.padding[float32]": {
        "outcome": Outcome.TIMEOUT,
        "reason": "no answer in 30.0 s; the process was ended",
        "metrics": (),
    },
    "communicator.peer_death": {
        "outcome": Outcome.DEVICE_LOST,
        "reason": "rank 2 ended, and device 2 failed its health probe afterwards",
        "metrics": (),
        "rank": 2,
    },
    "worker.lifecycle": {
        "outcome": Outcome.ERROR,
        "reason": "the check itself failed: KeyError: 'worker.run'",
        "metrics": (),
    },
    "attention.softcap[float32]": {
        "outcome": Outcome.WAIVED,
        "measured": Outcome.FAIL,
        "reason": "softcap 30: max error is 6.1; at most 3 is allowed",
        "metrics": (Metric("max error", 6.1, 3.0),),
        "waiver": "SIM-2026-001",
    },
    "quantization.int4[float16]": {
        "outcome": Outcome.WAIVER_VIOLATION,
        "measured": Outcome.PASS,
        "reason": "waiver SIM-2026-002 expects a failure, and the case passed: remove the waiver",
        "waiver": "SIM-2026-002",
    },
    "communicator.subgroup": {
        "outcome": Outcome.NOT_RUN,
        "reason": "3 ranks are needed, and this machine has 2 devices",
        "metrics": (),
    },
    "performance.no_host_copies": {
        "outcome": Outcome.FAIL,
        "reason": "linear copies 4 KiB to the host per call",
    },
    "sampling.distribution": {"metrics": (Metric("total variation", 0.0442, 0.045),)},
    "ops.silu_and_mul[float16]": {
        "metrics": (Metric("max error", 2.81, 3.0),),
        "warnings": ("rms error 0.71 is above 0.6: near the limit of what is allowed",),
    },
}

_LOST = ("streams.order", "engine.preemption")


def _with_story(row: CaseResult) -> CaseResult:
    return replace(row, **_STORY.get(row.id, {}))  # type: ignore[arg-type]  # any field


def failing() -> RunRecord:
    """A run with every outcome, two cases without a result, and a patched torch."""
    rows = [_with_story(row) for row in passing().results if row.id not in _LOST]
    provisional = requirements()["lora.unload"]
    rows.append(result(provisional, "", Outcome.FAIL, reason="the adapter is still active"))
    head = header(
        patches=("torch.softmax replaced by dougong_sim.fast:softmax",),
        pytest_plugins=("vendor-ci = vendor_ci.plugin",),
        waivers_file="conformance/waivers.toml",
        waivers_sha256="c" * 64,
    )
    problems = ("SIM-2026-002: quantization.int4[float16] passed; remove the waiver",)
    return record(rows, head, waiver_problems=problems)


def empty() -> RunRecord:
    """A run in which nothing ran."""
    head = header(devices=(), is_double=False, claims={}, versions={}, environment={})
    return record((), head, exit_code=5, exit_reason="nothing ran: no device is here")


def smoke() -> RunRecord:
    """One check per profile."""
    rows = [row for row in passing().results if requirements()[row.requirement].is_smoke]
    ids = tuple(row.id for row in rows)
    head = header(mode="smoke", selection=Selection(is_smoke=True))
    return record(rows, head, required=ids, missing=(), exit_code=0, exit_reason="")


def on_a_chip() -> RunRecord:
    """The same suite on a device that stands for itself."""
    plugin = PluginIdentity(
        name="acme", distribution="acme-dougong", version="1.4.1", record_sha256="b" * 64
    )
    devices = ({"index": 0, "name": "Acme B1", "arch": "acme-b1", "memory_bytes": 64 << 30},)
    claims = {"dtypes": list(DTYPES), "features": ["attention.sliding_window"]}
    return passing(header(plugin=plugin, devices=devices, claims=claims, is_double=False))
