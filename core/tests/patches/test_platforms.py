"""Devices, errors and configuration as a stranger's platform has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dougong import LLM, SamplingParams
from dougong.cli.collective_check import check_collective
from dougong.config import EngineArgs
from dougong.engine.planning import explain
from dougong.errors import ConfigError, EngineDeadError, OutOfDeviceMemory
from dougong.planner import FallbackLevel
from dougong.platforms import open_platform
from tests.patches.conftest import Outside
from tests.support.greedy import greedy_tokens
from tests.support.stub_plugins import PLATFORM
from tests.support.tiny_gguf import write_tiny_gguf

RUNTIME = """

from dougong.contracts import MemoryInfo
from {package}.runtime import StubRuntime


class OwnRuntime(StubRuntime):
    # Whatever torch's module of a device type might answer is not asked.
    @property
    def module(self):
        raise AssertionError("torch was asked for the device")

    def memory_info(self, device_index):
        count("memory")
        return MemoryInfo(3 << 28, 1 << 30)

    def peak_memory_bytes(self):
        count("peak")
        return 0

    def empty_cache(self):
        count("empty cache")

    def synchronize(self):
        count("wait")

    def empty_host(self, shape, dtype):
        import torch

        count("host buffer")
        return torch.empty(tuple(shape), dtype=dtype)


StubPlatform.runtime = property(lambda self: self.__dict__.setdefault("_own", OwnRuntime()))
"""
CONFIG = """
    def check_and_update_config(self, config):
        from dougong.contracts import ConfigChange

        return [ConfigChange("max_num_seqs", 3, "this chip captures no larger step")]
"""
FAILS = """
    def classify_error(self, exc):
        from dougong.contracts import Fault, OutOfDeviceMemory

        if "ACME-207" in str(exc):
            return Fault(OutOfDeviceMemory, "acme: no memory left (207)", 0)
        return None
"""
FAILING_NORM = """
from dougong.ops import register_kernel

calls = []


@register_kernel("silu_and_mul", name="acme/silu")
def silu(x):
    from torch.nn import functional as F

    calls.append(1)
    if len(calls) > 40:
        raise RuntimeError("vendor call failed: ACME-207")
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up
"""
QUANTIZED = """
    def get_supported_quantization(self):
        from dougong.contracts import QuantizationSupport

        return [QuantizationSupport(format="q8_0", storage="uint8", kernel="acme/q8",
                                    activation_dtypes=("float32",), is_native=True)]
"""
MASKED = """
import os
from dougong.contracts import read_device_mask

seen = read_device_mask(os.environ.get("FAKE_VISIBLE_DEVICES"), ["A-0", "A-1", "A-2"],
                        variable="FAKE_VISIBLE_DEVICES")
return Available(tuple(
    DeviceInfo(index=at, name="Fake", uuid=f"A-{physical}") for at, physical in enumerate(seen)
))
"""
ENVIRONMENT = """
    def get_device_communicator_cls(self): return "{package}.platform:Own"


from dougong.reference import TorchCommunicator


class Own(TorchCommunicator):
    @classmethod
    def rank_environment(cls, rank, size):
        return {{"FAKE_EXPANSION": "wide"}}

    def __init__(self, options, device):
        import os

        count("expansion " + os.environ.get("FAKE_EXPANSION", "none"))
        super().__init__(options, device)
"""


def test_memory_waits_and_host_buffers_are_asked_of_the_platform_alone(
    outside: Outside, model: str, expected: tuple[int, ...]
) -> None:
    outside.platform(PLATFORM + RUNTIME)
    with LLM(model, platform="acme", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
    counts = outside.counts()
    assert all(counts[what] > 0 for what in ("memory", "wait", "host buffer"))


def test_a_value_that_the_chip_needs_is_proposed_with_its_reason(
    outside: Outside, model: str
) -> None:
    outside.platform(PLATFORM + CONFIG)
    with LLM(model, platform="acme", num_kv_blocks=20) as llm:
        (decision,) = (one for one in llm.plan.decisions if one.field == "max_num_seqs")
    assert (decision.value, decision.reason) == (3, "this chip captures no larger step")
    with pytest.raises(ConfigError, match="this chip captures no larger step"):
        LLM(model, platform="acme", num_kv_blocks=20, max_num_seqs=5)


def test_a_vendors_error_ends_the_engine_under_its_own_name(outside: Outside, model: str) -> None:
    outside.platform(PLATFORM + FAILS, FAILING_NORM)
    params = SamplingParams(max_tokens=60, ignore_eos=True)
    with (
        LLM(model, platform="acme", num_kv_blocks=20) as llm,
        pytest.raises((OutOfDeviceMemory, EngineDeadError)) as raised,
    ):
        llm.generate(prompt_token_ids=[[5, 6, 7]], sampling_params=params)
    fault = raised.value if isinstance(raised.value, OutOfDeviceMemory) else raised.value.__cause__
    assert isinstance(fault, OutOfDeviceMemory)
    assert "acme: no memory left (207)" in str(fault)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (PLATFORM, "platform acme has no kernel for q8_0"),
        (PLATFORM + QUANTIZED, "acme/q8: this version of the core hands kernels plain weights"),
    ],
    ids=["not stated", "stated"],
)
def test_formats_that_a_platform_states_are_asked_and_others_are_dequantized_at_load(
    outside: Outside, tmp_path: Path, body: str, told: str
) -> None:
    file = str(write_tiny_gguf(tmp_path / "tiny.gguf"))
    outside.platform(body)
    plan = explain(EngineArgs(model=file, platform="acme"))
    (fallback,) = plan.fallbacks
    assert fallback.level is FallbackLevel.PATH
    assert fallback.reason.startswith(told)
    assert {one.where for one in plan.weights if one.format == "q8_0"} == {"dequantized at load"}


def test_visible_devices_are_the_vendors_own_variable(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VISIBLE_DEVICES", "2,A-0")
    outside.platform(PLATFORM, probe=MASKED)
    devices = open_platform("acme").selection.table.named("acme")[0].devices
    assert [(one.index, one.uuid) for one in devices] == [(0, "A-2"), (1, "A-0")]


def test_what_a_ranks_process_needs_in_its_environment_is_declared(outside: Outside) -> None:
    outside.platform(PLATFORM + ENVIRONMENT)
    error, _ = check_collective(open_platform("acme"), 0)
    assert error == 0.0
    assert outside.counts()["expansion wide"] == 2, "each of two ranks"
    assert "FAKE_EXPANSION" not in os.environ
