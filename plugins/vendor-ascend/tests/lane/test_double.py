"""The double is loud: what it cannot do fails, and mixing host and device fails as on hardware."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.double import emulation
from tests.references.refusals import VendorLimitError

pytestmark = pytest.mark.lane
_WHEEL = Path(sysconfig.get_path("purelib")) / "torch_npu"
_THEIRS = ("acl", "rtD", "rtF", "rtG", "rtK", "Msprof", "Hccl", "_ZN3atb")


def _symbols(path: Path, kind: str) -> set[str]:
    done = subprocess.run(
        ["nm", "-D", f"--{kind}-only", str(path)], capture_output=True, text=True, check=True
    )
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm of the compiler's tools is not here")
def test_the_double_defines_what_the_wheel_is_linked_with() -> None:
    """By the linker's table: a later wheel that needs more is told here, not by a crash."""
    libraries = _WHEEL.parent / "dougong_ascend_double"
    here = set().union(*(_symbols(path, "defined") for path in libraries.glob("*.so")))
    wheel = [*_WHEEL.glob("lib/*.so"), *_WHEEL.glob("_C*.so")]
    defined = set().union(*(_symbols(path, "defined") for path in wheel))
    needed = set().union(*(_symbols(path, "undefined") for path in wheel))
    wanted = {name for name in needed - defined if name.startswith(_THEIRS)}
    assert len(wanted) > 80
    assert wanted - here == set()


def test_ops_compute_on_the_memory_of_the_device() -> None:
    x = torch.arange(12.0).view(3, 4)
    on_device = x.to("npu")
    assert torch.equal((on_device @ on_device.t()).cpu(), x @ x.t())
    assert torch.equal(on_device[torch.tensor([2, 0]).to("npu")].cpu(), x[[2, 0]])
    on_device[:, 1] = 7
    assert torch.equal(on_device.t().contiguous().half().cpu()[1], torch.full((3,), 7.0).half())
    out = torch.empty(0, device="npu")
    torch.add(on_device, 1, out=out)
    assert out.shape == x.shape
    assert out.device.type == "npu"
    assert on_device.sum().item() == on_device.cpu().sum().item()


def test_fresh_memory_holds_no_number() -> None:
    torch.get_device_module("npu").empty_cache()
    fresh = torch.empty(8 << 20, device="npu")[:1000]
    assert fresh.cpu().isnan().all()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (lambda x: x + torch.ones(3), "same device"),
        (lambda x: x[torch.tensor([0, 1])], "same device"),
        (lambda x: torch.ops.npu.npu_gelu(x), "no reference"),
        (lambda x: torch.linalg.eigh(x.outer(x)), "CPU through dispatcher backend fallback"),
        (lambda x: torch.ops.npu.npu_swiglu(x, dim=-1), "odd length"),
        (lambda x: x.exponential_(generator=torch.Generator("npu")), "random numbers"),
    ],
)
def test_what_hardware_refuses_or_the_double_lacks_fails(
    fault: Callable[[torch.Tensor], object], error: str
) -> None:
    with pytest.raises((RuntimeError, VendorLimitError), match=error):
        fault(torch.ones(3, device="npu"))


def test_what_ran_is_counted() -> None:
    before = emulation.calls["npu::npu_rms_norm"]
    torch.ops.npu.npu_rms_norm(torch.ones(2, 32).to("npu"), torch.ones(32).to("npu"))
    assert emulation.calls["npu::npu_rms_norm"] == before + 1
