"""The device side of one rank: obeys a `SchedulerOutput`, chooses no policy."""

from __future__ import annotations

from dougong.worker.input_batch import InputBatch
from dougong.worker.model_runner import ModelRunner, ModelStep, RunnerParts
from dougong.worker.step_inputs import StepInputs

__all__ = ["InputBatch", "ModelRunner", "ModelStep", "RunnerParts", "StepInputs"]
