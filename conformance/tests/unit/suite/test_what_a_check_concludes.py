"""Checks on a subject that answers from a table: what they conclude, and of what they are sure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from dougong.contracts import AttentionPhase

from dougong_conformance.check import all_checks
from dougong_conformance.judging import Judge
from dougong_conformance.local import LocalSubject
from dougong_conformance.outcomes import CheckEnded, Outcome
from dougong_conformance.requirements import Level, all_requirements
from dougong_conformance.runner.run import claimed_names
from dougong_conformance.selftest.plain_attention import PlainBackend, PlainImpl, with_plain
from dougong_conformance.session import Session, load_plugin
from dougong_conformance.subject import Facts, Raised, SubjectRaised

_MIB = 1 << 20


class Told:
    """A subject whose procedures answer from a table."""

    def __init__(
        self, answers: Mapping[str, Any], *integrated: bool, dtypes: tuple[str, ...] = ("float32",)
    ) -> None:
        self._answers = answers
        self.calls: list[dict[str, Any]] = []
        self.facts = Facts(
            platform="told",
            distribution="told 1",
            device_type="told",
            num_devices=len(integrated),
            dtypes=dtypes,
            claims={"collective_dtypes": [], "dtypes": list(dtypes)},
            devices=[{"is_integrated": one} for one in integrated],
        )

    def call(self, procedure: str, /, **arguments: Any) -> Any:
        self.calls.append({"procedure": procedure, **arguments})
        answer = self._answers[procedure]
        return answer(**arguments) if callable(answer) else answer


def ended(id: str, subject: Any) -> Outcome:
    try:
        all_checks()[id].run(subject, Judge())
    except CheckEnded as exc:
        return exc.outcome
    return Outcome.PASS


@pytest.mark.parametrize("id", ["worker.uses_its_device", "memory.each_device_counts_its_own"])
def test_what_is_whose_is_asked_of_devices_with_memory_of_their_own(id: str) -> None:
    assert ended(id, Told({}, True)) is Outcome.NOT_CLAIMED
    assert ended(id, Told({}, True, True)) is Outcome.NOT_CLAIMED
    assert ended(id, Told({}, False)) is Outcome.NOT_RUN
    # Core would make a failure of it: a platform that is one device could never be complete.
    assert all_requirements()[id].capability == "device.memory_of_its_own"


def test_an_integrated_neighbour_does_not_excuse_the_device_under_test() -> None:
    assert not Told({}, False, True).facts.shares_host_memory
    assert Told({}, True, False).facts.shares_host_memory


def _memory(num_bytes: int) -> dict[str, Any]:
    info = {"free": num_bytes, "total": num_bytes}
    return {"memory.info": info, "memory.hold": lambda num_bytes, **_: num_bytes,
            "memory.drop": None}  # fmt: skip


def test_memory_that_does_not_move_never_passes_for_want_of_free_memory() -> None:
    id = "memory.allocation_moves_free"
    assert ended(id, Told(_memory(300 * _MIB), True)) is Outcome.NOT_RUN
    assert ended(id, Told(_memory(4096 * _MIB), True)) is Outcome.FAIL
    assert ended(id, Told(_memory(300 * _MIB), False)) is Outcome.FAIL


def test_a_host_that_promises_its_memory_several_times_is_asked_for_more_than_that() -> None:
    raised = Raised("OutOfDeviceMemory", ("OutOfDeviceMemory",), "", "", {"device_index": 0})
    answers = {
        "memory.info": {"free": _MIB, "total": 2 * _MIB},
        "memory.exhaust": {"raised": raised, "original": None},
    }
    for is_integrated, least in ((True, 1 << 57), (False, 8 * _MIB)):
        told = Told(answers, is_integrated)
        assert ended("memory.running_out_is_typed", told) is Outcome.PASS
        assert told.calls[-1]["num_bytes"] >= least
    assert told.calls[-1]["num_bytes"] == 8 * _MIB


def _mask(*uuids: str, mask: str | None = None) -> dict[str, Any]:
    return {"mask": mask, "devices": [{"index": i, "uuid": u} for i, u in enumerate(uuids)]}


def test_an_unset_mask_that_hides_devices_is_a_failure() -> None:
    answers = {"discovery.asked": {"mask unset": _mask("a"), "mask one": _mask("a", mask="0")}}
    assert ended("discovery.mask_counts", Told(answers, False)) is Outcome.PASS
    assert ended("discovery.mask_counts", Told(answers, False, False)) is Outcome.FAIL


def test_a_runtime_that_was_asked_of_no_mask_has_not_heeded_one() -> None:
    masks = {"mask unset": _mask("a"), "mask empty": _mask(mask="")}
    heard = {"unset": {"count": 1, "uuids": ["a"]}, "empty": {"count": 0, "uuids": []}}
    for answer, expected in ((heard, Outcome.PASS), ({}, Outcome.FAIL)):
        answers = {"discovery.asked": masks, "discovery.loaded": {"masks": answer}}
        assert ended("discovery.runtime_heeds_the_mask", Told(answers, False)) is expected


def test_what_is_behind_an_op_is_held_against_the_oracle_not_against_the_device() -> None:
    def poisoned(x: torch.Tensor, poison: float, **_: Any) -> dict[str, torch.Tensor]:
        return dict.fromkeys(("native", "own"), torch.full_like(x, poison))

    def right(x: torch.Tensor, weight: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        found = torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-5)
        return dict.fromkeys(("native", "own"), found)

    id = "streams.results_are_ordered_with_the_caller"
    for answer, expected in ((right, Outcome.PASS), (poisoned, Outcome.FAIL)):
        assert ended(id, Told({"streams.consume_behind_ops": answer}, False)) is expected


def test_sums_are_judged_in_the_dtypes_that_collectives_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[str] = []
    monkeypatch.setattr(
        "dougong_conformance.suite.communicator._judge_rounding",
        lambda subject, judge, dtype: judged.append(dtype),
    )
    takes = {"all_reduce": ["float32"], "reduce_scatter": ["float32", "bfloat16"]}
    told = Told({"communicator.dtypes": takes}, False, dtypes=("bfloat16", "float32"))
    assert ended("communicator.numerics", told) is Outcome.PASS
    assert judged == ["float32"]
    none = Told({"communicator.dtypes": takes}, False, dtypes=("float16",))
    assert ended("communicator.numerics", none) is Outcome.FAIL


def test_twelve_graphs_that_leak_stand_out_on_a_host_whose_memory_moves() -> None:
    def leaking(count: int, num_bytes: int) -> dict[str, Any]:
        return {"lost": count * num_bytes, "told": [], "after_release": 0}

    for is_integrated in (True, False):
        told = Told({"graph.memory": leaking}, is_integrated)
        object.__setattr__(told.facts, "has_graph_runner", True)
        assert ended("graph.memory_is_bounded", told) is Outcome.FAIL


def test_names_that_a_plugin_claims_are_its_features_and_the_fields_that_say_yes() -> None:
    claims = {
        "features": ["a.b"],
        "graph_capture": True,
        "pin_memory": False,
        "compile_backends": ["inductor"],
        "collective_dtypes": [],
        "quantization": (),
        "max_head_size": None,
        "kv_alignment_bytes": 1,
    }
    assert claimed_names(claims) == {"a.b", "features", "graph_capture", "compile_backends"}


def test_an_op_that_is_there_and_wrong_fails_the_run() -> None:
    of_ops = [one for one in all_requirements().values() if one.capability.startswith("op.")]
    assert of_ops
    assert all(one.level is Level.MUST for one in of_ops)


class _Wide(Told):
    """A platform whose only backend takes blocks of 128 tokens and heads of 128."""

    def __init__(self, free: int, ran: list[str]) -> None:
        def supports(requests: list[Any], **_: Any) -> list[dict[str, bool]]:
            return [{"is_supported": True}] * len(requests)

        def layout(**_: Any) -> dict[str, Any]:
            ran.append("layout")
            raise SubjectRaised(Raised("Reached", ("Reached",), ""))

        answers = {
            "attention.missing": {"wide": ""},
            "attention.supports": supports,
            "attention.layout": layout,
            "memory.info": {"free": free, "total": free},
        }
        super().__init__(answers, False, dtypes=("bfloat16",))
        limits = {"block_sizes": [128], "head_sizes": [128]}
        object.__setattr__(self.facts, "attention", {"wide": limits})


def test_far_blocks_are_tried_wherever_a_quarter_of_the_memory_holds_them() -> None:
    ran: list[str] = []
    assert ended("attention.far_blocks", _Wide(1 << 30, ran)) is Outcome.NOT_RUN
    assert not ran
    with pytest.raises(SubjectRaised, match="Reached"):
        ended("attention.far_blocks", _Wide(64 << 30, ran))


@pytest.mark.parametrize("phase", [AttentionPhase.DECODE, AttentionPhase.PREFILL])
def test_a_backend_for_one_phase_does_not_pass_because_nothing_was_asked_of_it(
    phase: AttentionPhase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: Any, q: Any, k: Any, v: Any, cache: Any, metadata: Any, out: Any) -> None:
        PlainImpl.forward(self, q, k, v, cache, metadata, out)
        out.nan_to_num_()

    monkeypatch.setenv("DOUGONG_PLUGINS", "cpu")
    limits = replace(PlainBackend.limits, phases=frozenset({phase}))
    for written, expected in ((PlainImpl.forward, Outcome.PASS), (forward, Outcome.FAIL)):
        plugin = with_plain(load_plugin("cpu"), backend={"limits": limits}, forward=written)
        check = all_checks()["attention.nonfinite"]
        try:
            check.run(LocalSubject(Session(plugin)), Judge(), "float32")
            outcome = Outcome.PASS
        except CheckEnded as exc:
            outcome = exc.outcome
        assert outcome is expected


_REFUSES = Raised("ConfigError", ("ConfigError", "DougongError"), "platform told has none")


@pytest.mark.parametrize("id", ["lora.unload", "engine.lora_equals_merged", "engine.embeddings"])
@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (_REFUSES, Outcome.NOT_CLAIMED),
        (None, Outcome.FAIL),
        (replace(_REFUSES, kinds=("RuntimeError",)), Outcome.FAIL),
    ],
)
def test_a_platform_without_adapters_or_vectors_has_to_refuse_them(
    id: str, raised: Raised | None, outcome: Outcome
) -> None:
    assert ended(id, Told({"engine.refused": raised}, True)) is outcome


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("RequestError", Outcome.NOT_CLAIMED), ("DeviceError", Outcome.FAIL), ("", Outcome.FAIL)],
)
def test_a_worker_without_masks_gets_no_request_with_a_grammar(kind: str, outcome: Outcome) -> None:
    def generate(**arguments: Any) -> Any:
        if kind:
            raise SubjectRaised(Raised(kind, (kind, "DougongError"), "no masks here"))
        return {"answers": []}

    assert ended("engine.structured_output", Told({"engine.generate": generate}, True)) is outcome
