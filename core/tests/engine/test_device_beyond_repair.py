"""A kernel that takes its device with it ends the start, and both are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong import LLM
from dougong.contracts import KernelFault
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub, count_calls
from tests.support.tiny_models import write_tiny_checkpoint

# The device answers nothing any more once a kernel has failed on it.
RUNTIME = """
    @property
    def runtime(self):
        from {package}.runtime import StubRuntime

        return self.__dict__.setdefault("_runtime", Broken.of(StubRuntime))


class Broken:
    is_broken = False

    @staticmethod
    def of(runtime):
        class BrokenRuntime(runtime):
            def set_device(self, device_index):
                super().set_device(device_index)
                self.synchronize()

            def synchronize(self):
                if Broken.is_broken:
                    raise KernelFault("the context is gone")

        return BrokenRuntime()
"""
HOOKS = """
from dougong.contracts import KernelFault
from dougong.ops import register_kernel


@register_kernel("linear", name="acme/wild")
def wild(x, weight, bias):
    from .platform import Broken

    Broken.is_broken = True
    raise KernelFault("bad address in tile 7")
"""


def test_a_device_that_stays_broken_ends_the_second_round_with_both_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
    installed = Installed(tmp_path / "stubs", monkeypatch)
    head = "from dougong.contracts import KernelFault\n"
    installed.add(
        Stub(
            distribution="dougong-acme",
            name="acme",
            platform_body=head + PLATFORM + RUNTIME,
            hooks=HOOKS,
        )
    )
    model = str(write_tiny_checkpoint(tmp_path / "model"))
    with pytest.raises(KernelFault) as caught:
        LLM(model, platform="acme", num_kv_blocks=20)
    told = str(caught.value)
    assert "the context is gone (device=0, rank=0). Before that, in the same start: " in told
    assert "acme/wild failed at its first use: op linear at " in told
    assert "bad address in tile 7" in told
    assert (caught.value.device_index, caught.value.rank) == (0, 0)
    ran = count_calls(tmp_path / "calls")
    assert sum(ran["set_device 0"].values()) == 2
