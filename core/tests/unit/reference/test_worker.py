"""The reference worker on the CPU: its life, its steps, its faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dougong.contracts import (
    Fault,
    GrammarMask,
    KernelFault,
    OutOfDeviceMemory,
    PluginError,
    UnsupportedError,
    WorkerState,
)
from dougong.messages import SamplingParams, TokenLogprobs
from dougong.reference import ReferenceWorker
from tests.support.reference_worker import bring_up, go_on, make_worker, plan_for, start
from tests.support.tiny_models import write_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def worker(checkpoint: Path) -> Iterator[ReferenceWorker]:
    worker = make_worker(checkpoint)
    bring_up(worker, plan_for(worker))
    yield worker
    worker.shutdown()


PROMPT = [5, 90, 17, 33, 200, 64, 3]


def test_a_chunked_prompt_samples_only_in_the_step_of_its_last_token(
    worker: ReferenceWorker,
) -> None:
    whole = worker.execute_model(start(0, ("a", PROMPT, [0], len(PROMPT))))
    first = worker.execute_model(start(1, ("b", PROMPT, [1], 4)))
    assert (first.req_ids, first.sampled_token_ids) == ([], [])
    last = worker.execute_model(go_on(2, b=3))
    assert last.req_ids == ["b"]
    assert last.sampled_token_ids == whole.sampled_token_ids


def test_a_request_gives_the_same_tokens_alone_and_in_company(worker: ReferenceWorker) -> None:
    steps = [start(0, ("a", PROMPT, [0], 7)), *(go_on(step_id, a=1) for step_id in range(1, 6))]
    alone = [worker.execute_model(step).sampled_token_ids[0] for step in steps]
    both = worker.execute_model(start(6, ("b", PROMPT, [3], 7), ("c", [9, 8], [5], 2)))
    company = [both.sampled_token_ids[both.req_ids.index("b")]]
    for step_id in range(7, 12):
        out = worker.execute_model(go_on(step_id, c=1, b=1))
        company.append(out.sampled_token_ids[out.req_ids.index("b")])
    assert company == alone


def test_steps_are_taken_in_order(worker: ReferenceWorker) -> None:
    with pytest.raises(UnsupportedError, match="step 3 was submitted, step 0 is next"):
        worker.submit(go_on(3))


def test_every_call_names_the_state_it_needs(checkpoint: Path) -> None:
    worker = make_worker(checkpoint)
    with pytest.raises(UnsupportedError, match="is created; this call needs device_ready"):
        worker.load_model(plan_for(worker))
    with pytest.raises(UnsupportedError, match="needs running"):
        worker.submit(go_on(0))
    worker.init_device()
    assert worker.state.value == WorkerState.DEVICE_READY.value
    with pytest.raises(UnsupportedError, match="load the model first"):
        worker.get_kv_cache_groups()
    worker.shutdown()
    worker.shutdown()
    assert worker.state.value == WorkerState.SHUT_DOWN.value


def test_loading_reports_who_computes_what(checkpoint: Path) -> None:
    worker = make_worker(checkpoint)
    kernels = worker.init_device()
    report = worker.load_model(plan_for(worker))
    assert report.attention_backends == {"reference/torch": 2}
    assert report.implementations["linear"] == {"native": 8}
    assert report.weight_bytes > 0
    assert report.kernels == kernels
    assert worker.determine_available_memory() > 0


def test_the_largest_step_fits_the_batch_even_with_few_and_short_sequences(
    checkpoint: Path,
) -> None:
    worker = make_worker(checkpoint)
    small = replace(worker.config, max_num_seqs=1, max_model_len=32, max_num_batched_tokens=100)
    object.__setattr__(worker.context, "config", small)
    worker.init_device()
    worker.load_model(plan_for(worker))
    assert worker.determine_available_memory() > 0


def test_a_vendors_exception_leaves_with_device_rank_and_step(
    worker: ReferenceWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def divide(step: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(worker._runner, "submit", divide)
    with pytest.raises(KernelFault, match="divided by zero") as caught:
        worker.submit(go_on(0))
    assert (caught.value.device_index, caught.value.rank, caught.value.step_id) == (0, 0, 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_memory_errors_are_named_and_other_exceptions_pass_unchanged(
    worker: ReferenceWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_from(exc: Exception) -> None:
        def submit(step: object) -> None:
            raise exc

        monkeypatch.setattr(worker._runner, "submit", submit)

    raise_from(torch.OutOfMemoryError("no room"))
    with pytest.raises(OutOfDeviceMemory, match="no room"):
        worker.submit(go_on(0))
    raise_from(KeyError("ours"))
    with pytest.raises(KeyError):
        worker.submit(go_on(1))


class LateEvent:
    """Passes after some queries; what the kernel did surfaces when somebody waits."""

    def __init__(self, num_queries: int, fault: Exception | None = None) -> None:
        self._left = num_queries
        self._fault = fault

    def record(self, stream: object = None) -> None:
        pass

    def query(self) -> bool:
        self._left -= 1
        return self._left < 0

    def synchronize(self) -> None:
        if self._fault is not None:
            raise self._fault


def use_event(monkeypatch: pytest.MonkeyPatch, worker: ReferenceWorker, event: LateEvent) -> None:
    monkeypatch.setattr(worker.context.platform.runtime, "new_event", lambda: event)


def test_a_fault_that_surfaces_late_is_classified_with_its_step(
    worker: ReferenceWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_event(monkeypatch, worker, LateEvent(0, ZeroDivisionError()))
    handle = worker.sample(worker.submit(start(0, ("a", PROMPT, [0], 7))))
    with pytest.raises(KernelFault, match="step=0"):
        handle.result()


def test_waiting_for_a_step_ends_at_its_deadline_and_may_be_tried_again(
    worker: ReferenceWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_event(monkeypatch, worker, LateEvent(5))
    handle = worker.sample(worker.submit(start(0, ("a", PROMPT, [0], 7))))
    with pytest.raises(TimeoutError, match="step 0"):
        handle.result(timeout_s=0.0)
    assert handle.result(timeout_s=30.0).req_ids == ["a"]


def test_a_step_that_samples_nothing_is_waited_for_too(
    worker: ReferenceWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_event(monkeypatch, worker, LateEvent(0, ZeroDivisionError()))
    handle = worker.sample(worker.submit(start(0, ("a", PROMPT, [0], 4))))
    with pytest.raises(KernelFault):
        handle.result()


def test_a_vendor_that_fails_to_classify_is_named(
    worker: ReferenceWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(step: object) -> None:
        raise KeyError("x")

    def classify(exc: BaseException) -> Fault:
        raise OSError("no table of errors")

    monkeypatch.setattr(worker._runner, "submit", submit)
    monkeypatch.setattr(worker.context.platform, "classify_error", classify)
    with pytest.raises(PluginError, match="'cpu' failed to classify KeyError"):
        worker.submit(go_on(0))
    odd = Fault(ValueError, "odd")  # type: ignore[arg-type]
    monkeypatch.setattr(worker.context.platform, "classify_error", lambda exc: odd)
    with pytest.raises(PluginError, match="no DeviceError"):
        worker.submit(go_on(1))


def test_memory_for_sampling_grows_with_the_sequences_of_a_step(checkpoint: Path) -> None:
    few, many = make_worker(checkpoint), make_worker(checkpoint)
    wider = replace(many.config, max_num_seqs=40)
    object.__setattr__(many.context, "config", wider)
    assert many.estimate_sampling_bytes() == 10 * few.estimate_sampling_bytes()
    assert few.estimate_sampling_bytes() >= 4 * 288 * 4 * 8


def test_logprobs_are_reported_for_who_asked(worker: ReferenceWorker) -> None:
    step = start(0, ("a", PROMPT, [0], 7), ("b", PROMPT, [1], 7))
    asking = SamplingParams(temperature=0.0, logprobs=3)
    object.__setattr__(step.scheduled_new_reqs[0], "sampling_params", asking)
    out = worker.execute_model(step)
    assert list(out.logprobs) == ["a"]
    found = out.logprobs["a"]
    assert isinstance(found, TokenLogprobs)
    assert found.token_id == out.sampled_token_ids[out.req_ids.index("a")][0]
    assert found.top[0] == (found.token_id, found.logprob)
    assert len(found.top) == 3


def test_a_mask_limits_the_request_it_is_for_and_no_other(worker: ReferenceWorker) -> None:
    free = worker.execute_model(start(0, ("a", PROMPT, [0], 7)))
    step = start(1, ("c", PROMPT, [2], 7), ("d", PROMPT, [3], 7), ("e", PROMPT, [4], 3))
    bits = torch.zeros((2, 9), dtype=torch.int32)
    bits[0, 4], bits[1, 8] = 1 << 5, -(2**31)  # token 133, and the last of the vocabulary
    out = worker.execute_model(step, GrammarMask(("e", "d"), bits))  # e is not sampled yet
    found = dict(zip(out.req_ids, out.sampled_token_ids, strict=True))
    assert found == {"c": free.sampled_token_ids[0], "d": [287]}
    out = worker.execute_model(go_on(2, c=1, e=4), GrammarMask(("e",), bits[:1]))
    assert dict(zip(out.req_ids, out.sampled_token_ids, strict=True))["e"] == [133]


def test_what_it_cannot_do_says_so(worker: ReferenceWorker) -> None:
    with pytest.raises(UnsupportedError, match="memory pools"):
        worker.sleep()
    with pytest.raises(UnsupportedError, match="needs asleep"):
        worker.wake()


def test_a_profile_is_written_per_rank(worker: ReferenceWorker, tmp_path: Path) -> None:
    worker.profile(True, str(tmp_path))
    worker.execute_model(start(0, ("a", PROMPT, [0], 7)))
    worker.profile(False, str(tmp_path))
    assert (tmp_path / "rank0.trace.json").stat().st_size > 0


def test_step_timers_count_steps_after_warm_up(worker: ReferenceWorker) -> None:
    worker.execute_model(start(0, ("a", PROMPT, [0], 7)))
    numbers = worker.collect()
    assert numbers["num_steps"] == 1
    assert numbers["forward_s"] > 0
