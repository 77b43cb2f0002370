"""What the CPU claims and measures: conservative, repeatable, without torch."""

from __future__ import annotations

import platform as machine
import subprocess
import sys

import pytest

from dougong.contracts import ConfigView, OutOfDeviceMemory
from dougong.cpu import platform as cpu_platform
from dougong.cpu.platform import CpuPlatform


@pytest.mark.parametrize(
    ("features", "first"),
    [
        (frozenset({"mm.bf16.avx512"}), "bfloat16"),
        (frozenset({"isa.avx2"}), "float32"),
        (frozenset(), "float32"),
    ],
)
def test_bfloat16_is_preferred_only_where_it_is_computed_fast(
    monkeypatch: pytest.MonkeyPatch, features: frozenset[str], first: str
) -> None:
    monkeypatch.setattr(cpu_platform, "detect_features", lambda: features)
    claims = CpuPlatform().claims(machine.machine())
    assert claims.dtypes[0] == first
    assert features <= claims.features


def test_an_unknown_family_gets_generic_claims_that_say_so() -> None:
    claims = CpuPlatform().claims("abacus")
    assert claims.is_generic
    assert claims.features == frozenset()
    assert "float32" in claims.dtypes


def test_no_largest_head_size_is_claimed_since_plain_torch_takes_any() -> None:
    assert CpuPlatform().claims(machine.machine()).max_head_size is None


def test_questions_give_the_same_answer_twice() -> None:
    platform = CpuPlatform()
    assert platform.claims(machine.machine()) == platform.claims(machine.machine())
    facts = platform.facts(0)
    assert facts.memory_limit_bytes == platform.facts(0).memory_limit_bytes
    assert facts.is_integrated


@pytest.mark.parametrize(
    ("features", "claimed"),
    [
        (frozenset(), set()),
        (frozenset({"isa.avx2"}), {"batch_invariant.float32"}),
        (
            frozenset({"isa.avx2", "mm.bf16.avx512"}),
            {"batch_invariant.float32", "subnormals.flush.bfloat16"},
        ),
    ],
)
def test_what_its_kernels_results_have_in_common_is_claimed_by_their_level(
    monkeypatch: pytest.MonkeyPatch, features: frozenset[str], claimed: set[str]
) -> None:
    monkeypatch.setattr(cpu_platform, "detect_features", lambda: features)
    found = CpuPlatform().claims(machine.machine()).features
    assert found - features == claimed


def test_it_takes_half_the_hosts_memory_unless_the_user_said_otherwise() -> None:
    (change,) = CpuPlatform().check_and_update_config(ConfigView(model="x"))
    assert (change.field, change.value) == ("device_memory_utilization", 0.5)
    asked = ConfigView(model="x", device_memory_utilization=0.8)
    assert CpuPlatform().check_and_update_config(asked) == ()


def test_running_out_of_memory_is_the_one_fault_it_names() -> None:
    platform = CpuPlatform()
    for exc in (MemoryError("x"), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        fault = platform.classify_error(exc)
        assert fault is not None
        assert fault.kind is OutOfDeviceMemory
    assert platform.classify_error(RuntimeError("shape mismatch")) is None


def test_questions_need_no_torch() -> None:
    code = (
        "import sys, platform; from dougong.cpu.platform import CpuPlatform as P;"
        "p = P(); p.claims(platform.machine()); p.facts(0); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
