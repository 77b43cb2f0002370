"""A vendor's worker overrides parts of a step through what is published, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dougong import reference
from dougong.contracts import SchedulerOutput
from dougong.errors import ContractError
from dougong.reference import (
    ModelRunner,
    ModelStep,
    ReferenceWorker,
    RunnerParts,
    SampledTokens,
    StepInputs,
)
from tests.support.reference_worker import bring_up, make_worker, plan_for, start
from tests.support.tiny_models import write_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


class VendorRunner(ModelRunner):
    """Notes each part of a step, and bans the most likely token."""

    def __init__(self, parts: RunnerParts) -> None:
        super().__init__(parts)
        self.told: list[str] = []
        self.last: SampledTokens | None = None

    def prepare_inputs(self, step: SchedulerOutput) -> StepInputs:
        self.told[:] = [f"prepare {step.step_id}"]
        return super().prepare_inputs(step)

    def forward(self, inputs: StepInputs) -> torch.Tensor | None:
        step = self.attention_step(inputs)
        hidden = self.model.forward(inputs.token_ids, inputs.positions, step)
        self.told.append(f"forward {len(step.metadata)}")
        logits = self.model.compute_logits(hidden[-1:])
        return logits.index_fill(1, logits.argmax(-1), -torch.inf)

    def sample(self, step: ModelStep) -> ModelStep:
        self.told.append(f"sample {step.step_id}")
        sampled = super().sample(step)
        self.last = sampled.sampled
        return sampled


class VendorWorker(ReferenceWorker):
    runner_cls = VendorRunner


class MisspeltRunner(ModelRunner):
    def prepare_input(self, step: SchedulerOutput) -> StepInputs:
        raise AssertionError


class MisspeltWorker(ReferenceWorker):
    runner_cls = MisspeltRunner


def test_inputs_forward_and_sampling_may_be_a_vendors_own(checkpoint: Path) -> None:
    plain, vendor = make_worker(checkpoint), make_worker(checkpoint, worker_cls=VendorWorker)
    for worker in (plain, vendor):
        bring_up(worker, plan_for(worker))
    step = start(0, ("a", [5, 90, 17], [0], 3))
    (usual,), (other,) = (one.execute_model(step).sampled_token_ids for one in (plain, vendor))
    assert usual != other
    runner = vendor._runner
    assert isinstance(runner, VendorRunner)
    assert runner.told == ["prepare 0", "forward 1", "sample 0"]
    assert runner.last is not None
    assert runner.last.token_ids.tolist() == other


def test_a_runner_that_does_not_fit_is_refused_at_load(checkpoint: Path) -> None:
    worker = make_worker(checkpoint, worker_cls=MisspeltWorker)
    worker.init_device()
    with pytest.raises(ContractError, match="did you mean 'prepare_inputs'") as caught:
        worker.load_model(plan_for(worker))
    assert "runner_cls of MisspeltWorker" in str(caught.value)


def test_every_published_name_can_be_had() -> None:
    for name in reference.__all__:
        assert getattr(reference, name).__name__ == name
    with pytest.raises(AttributeError, match="InputBatch"):
        reference.InputBatch  # noqa: B018 - what is not published is not there
