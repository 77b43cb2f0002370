"""Identity, capabilities, configuration, and what a worker asks."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from dougong.contracts import ConfigView, DeviceError, Profiler

from dougong_ascend import library
from dougong_ascend.library import report_kernels
from dougong_ascend.platform import AscendPlatform
from tests.plugin.npu_module import GIB, FakeNpu

FAMILIES = ("910b", "a3", "310p", "a5")


@pytest.fixture
def platform() -> AscendPlatform:
    return AscendPlatform()


def test_every_family_has_claims_of_its_own(platform: AscendPlatform) -> None:
    assert tuple(platform.families()) == FAMILIES
    for family in FAMILIES:
        claims = platform.claims(family)
        assert claims.arch == family and not claims.is_generic
        assert claims.slot_dtype == "int32" and claims.pin_memory and claims.async_execution
        assert "device.double" not in claims.features


@pytest.mark.parametrize("arch", ["", "soc-999", "ascend910", "310b4"])
def test_an_unknown_chip_is_claimed_nothing_that_is_not_certain(
    platform: AscendPlatform, arch: str
) -> None:
    claims = platform.claims(arch)
    assert claims.is_generic and claims.arch == arch
    assert claims.dtypes == ("float16",)
    assert not claims.features and not claims.graph_capture and not claims.quantization
    assert not claims.triton and not claims.compile_backends


def test_what_differs_between_families(platform: AscendPlatform) -> None:
    claims = {family: platform.claims(family) for family in FAMILIES}
    assert "bfloat16" not in claims["310p"].dtypes
    assert claims["310p"].kv_block_sizes == (64,)
    assert {family for family in FAMILIES if claims[family].graph_capture} == {"910b", "a3"}
    assert not any(one.quantization for one in claims.values()), "the core computes none as stored"
    paged = {"ascend.fused_infer", "ascend.paged_nz"}
    assert all(len(paged & one.features) == 1 for one in claims.values())


def test_facts_are_read_after_the_device_is_set(platform: AscendPlatform, npu: FakeNpu) -> None:
    facts = platform.facts(1)
    assert platform.facts_open_context
    assert (facts.arch, facts.name) == ("910b", "Ascend910B2")
    assert (facts.memory_total_bytes, facts.memory_free_bytes) == (64 * GIB, 60 * GIB)
    assert (facts.num_compute_units, facts.runtime_version) == (24, "9.1.0")
    assert npu.asked[:2] == ["device_count", "set_device"]


def test_facts_of_a_device_that_is_not_here(platform: AscendPlatform, npu: FakeNpu) -> None:
    with pytest.raises(DeviceError, match="finds 2 devices here; index 2"):
        platform.facts(2)
    assert "set_device" not in npu.asked


def test_making_the_runtime_asks_the_device_nothing(platform: AscendPlatform, npu: FakeNpu) -> None:
    assert platform.runtime is platform.runtime
    assert npu.asked == []


def test_the_runtime_waits_for_the_current_device(platform: AscendPlatform, npu: FakeNpu) -> None:
    platform.runtime.set_device(1)
    platform.runtime.synchronize()
    assert npu.asked == ["set_device", "synchronize()"]
    assert platform.runtime.current_device() == 1
    assert platform.runtime.device_uuid(1) == ""


def test_a_profile_is_the_vendor_s(
    platform: AscendPlatform, npu: FakeNpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor = SimpleNamespace(
        ProfilerActivity=SimpleNamespace(CPU="cpu", NPU="npu"),
        tensorboard_trace_handler=lambda folder: f"into {folder}",
        profile=lambda **named: SimpleNamespace(
            start=lambda: npu.asked.append(str(named)), stop=lambda: npu.asked.append("stop")
        ),
    )
    monkeypatch.setitem(sys.modules, "torch_npu.profiler", vendor)
    runtime = platform.runtime
    assert isinstance(runtime, Profiler)
    runtime.start("/tmp/here")
    runtime.stop()
    runtime.stop()
    told = str({"activities": ["cpu", "npu"], "on_trace_ready": "into /tmp/here"})
    assert npu.asked == [told, "stop"]


@pytest.mark.usefixtures("npu_ops")
@pytest.mark.parametrize(
    ("soc", "loaded", "missing"),
    [
        (221, {"torch-npu", "torch-npu-fused-infer"}, {"atb-paged-nz": "310P"}),
        (260, {"torch-npu", "torch-npu-fused-infer"}, {"atb-paged-nz": "a5"}),
        (203, {"torch-npu", "atb-paged-nz"}, {"torch-npu-fused-infer": "this chip is a 310P"}),
    ],
)
def test_kernels_are_those_of_the_chip(
    platform: AscendPlatform, npu: FakeNpu, soc: int, loaded: set[str], missing: dict[str, str]
) -> None:
    npu.soc = soc
    report = platform.import_kernels()
    assert {one.split(" ")[0] for one in report.loaded} == loaded
    assert report.missing.keys() == missing.keys()
    assert all(reason in report.missing[name] for name, reason in missing.items())
    assert npu.jit_compile is False and npu.config.allow_internal_format is True


def test_a_missing_transformer_library_is_reported_with_what_to_install(
    npu: FakeNpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    npu.soc = 203
    monkeypatch.setattr(library, "_OPS", {"atb-paged-nz": (("atb", "_npu_of_no_version"),)})
    report = report_kernels()
    reason = report.missing["atb-paged-nz"]
    assert "no _npu_of_no_version: install NNAL (ATB)" in reason


def test_a_torch_npu_that_does_not_load_is_reported_and_leaves_torch_as_it_is(
    platform: AscendPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise ImportError("libhccl.so: cannot open shared object file")

    monkeypatch.delattr(torch, "npu", raising=False)
    monkeypatch.setattr("dougong_ascend.library.importlib.import_module", refuse)
    report = platform.import_kernels()
    assert report.loaded == ()
    assert set(report.missing) == {"torch-npu", "torch-npu-fused-infer", "atb-paged-nz"}
    assert all("libhccl.so" in reason for reason in report.missing.values())
    assert "torch_npu" not in sys.modules


def test_no_capture_is_planned_where_each_launch_is_waited_for(
    platform: AscendPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = ConfigView(model="demo")
    monkeypatch.delenv("ASCEND_LAUNCH_BLOCKING", raising=False)
    assert platform.check_and_update_config(view) == ()
    monkeypatch.setenv("ASCEND_LAUNCH_BLOCKING", "1")
    (change,) = platform.check_and_update_config(view)
    assert (change.field, change.value) == ("enforce_eager", True)
    assert "ASCEND_LAUNCH_BLOCKING=1" in change.reason
    assert platform.check_and_update_config(ConfigView(model="demo", enforce_eager=True)) == ()


def test_claims_name_no_family_that_nothing_finds() -> None:
    text = Path(library.__file__).with_name("families.py").read_text("utf-8")
    assert all(f'"{family}"' in text for family in FAMILIES)
