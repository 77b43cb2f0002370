from __future__ import annotations

from collections.abc import Iterator

import pytest

from dougong_conformance.check import all_checks, cases_of
from dougong_conformance.judging import Judge
from dougong_conformance.local import LocalSubject
from dougong_conformance.outcomes import CheckEnded, Outcome
from dougong_conformance.session import Session, load_plugin

_PASSED = (
    "discovery.probe_is_typed", "discovery.import_is_inert", "discovery.two_plugins_get_along",
    "discovery.unloadable_is_loud", "discovery.queries_are_idempotent",
    "identity.answers_agree", "identity.api_is_complete", "identity.contract_range_is_bounded",
    "identity.claimed_dtypes_compute", "identity.unclaimed_is_refused_or_right",
    "memory.zeros_are_zero", "memory.strided_copies_arrive", "memory.host_buffers_fit",
    "memory.copies_keep_their_order", "memory.far_rows_are_reached",
    "streams.work_keeps_its_order", "streams.waits_wait", "streams.previous_stream_is_restored",
    "worker.life_cycle", "worker.refuses_calls_out_of_order", "worker.layout_is_as_planned",
    "engine.greedy_equality", "engine.mixed_batches", "engine.abort_frees",
    "engine.preemption_equality", "engine.penalties", "engine.mixed_sampling",
    "engine.prompt_logprobs", "engine.structured_output", "engine.lora_equals_merged",
    "engine.lora_prefix_cache", "lora.unload", "lora.slot_reuse", "worker.grammar_masks",
)  # fmt: skip
_NOT_CLAIMED = (
    "discovery.mask_counts", "graph.replay_sees_new_inputs", "worker.sleep_frees",
    "worker.fault_in_a_launch", "performance.steps_do_not_wait", "memory.host_buffers_are_pinned",
)  # fmt: skip


@pytest.fixture(scope="module")
def subject() -> Iterator[LocalSubject]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUGONG_PLUGINS", "cpu")
        session = Session(load_plugin("cpu"))
        subject = LocalSubject(session)
        yield subject
        subject.call("engine.close")
        session.close()


def ended(subject: LocalSubject, id: str) -> Outcome:
    check = all_checks()[id]
    try:
        for case in cases_of(check, ("float32",)):
            check.run(subject, Judge(), *((case.dtype,) if case.dtype else ()))
    except CheckEnded as exc:
        return exc.outcome
    return Outcome.PASS


@pytest.mark.parametrize("id", _PASSED)
def test_the_cpu_platform_passes(subject: LocalSubject, id: str) -> None:
    assert ended(subject, id) is Outcome.PASS


@pytest.mark.parametrize("id", _NOT_CLAIMED)
def test_what_the_cpu_platform_does_not_claim_is_told_as_such(
    subject: LocalSubject, id: str
) -> None:
    assert ended(subject, id) is Outcome.NOT_CLAIMED
