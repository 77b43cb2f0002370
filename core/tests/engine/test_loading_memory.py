"""Loading, packing included, needs little more memory than the model, whatever the format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dougong.checkpoint import resolve_reference
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

ALLOWED = 1.25

# Prints the bytes of the model and the most memory the process had while loading it, above what
# it had before. Linux starts the count of the peak again when asked to.
PROGRAM = """
import sys
import torch
import gguf, safetensors.torch
from dougong.checkpoint import resolve_reference
from dougong.config import EngineArgs
from dougong.contracts import WorkerContext
from dougong.cpu.worker import CpuWorker
from dougong.engine.planning import plan_start
from dougong.platforms import open_platform

def memory(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

torch.ones(64, 64) @ torch.ones(64, 64)
loaded = open_platform("cpu")
args = EngineArgs(model=sys.argv[1], dtype=sys.argv[2], platform="cpu", max_model_len=256)
planned = plan_start(args, loaded, resolve_reference(sys.argv[1]))
worker = CpuWorker(WorkerContext(
    platform=loaded.platform, config=planned.config.view(), model_path=sys.argv[1],
    registrations=loaded.registrations,
))
worker.init_device()
open("/proc/self/clear_refs", "w").write("5")
before = memory("VmRSS")
report = worker.load_model(planned.plan.rank_plan)
assert {"cpu/packed_linear", "cpu/block_linear"} & {*report.implementations["linear"]}, report
print(report.weight_bytes, memory("VmHWM") - before)
"""


def peak_over_weights(reference: str, dtype: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, reference, dtype],
        capture_output=True,
        text=True,
        check=True,
    )
    model_bytes, peak_bytes = map(int, done.stdout.split())
    assert peak_bytes > 0.9 * model_bytes, "the measurement missed the weights"
    return peak_bytes / model_bytes


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_safetensors_stay_under_weights_and_a_quarter(tmp_path: Path, dtype: str) -> None:
    config = tiny_config(vocab_size=50_000, hidden_size=256, intermediate_size=8192)
    folder = write_tiny_checkpoint(tmp_path, config, num_shards=2, dtype=torch.bfloat16)
    assert peak_over_weights(str(folder), dtype) < ALLOWED


def test_the_quantized_demo_model_stays_under_weights_and_a_quarter() -> None:
    assert peak_over_weights(str(resolve_reference("demo").weights[0]), "bfloat16") < ALLOWED
