"""The wheel of counted ops on the CPU platform, whose own kernels are counted beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dougong.cpu import kernels
from dougong.ops import OPS
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import count_calls, op_wheel

NORM, ROTARY = "fused_add_rms_norm", "rotary_embedding"
OVERRIDE, KERNEL = "stubops/StubAddRMSNorm", "stubops/rotary"
WHEEL = "stubops 0.1"
CPU = {NORM: "cpu/fused_add_rms_norm", ROTARY: "cpu/rotary_embedding"}
COUNTED_AS = {
    (NORM, OVERRIDE): f"oot {NORM}",
    (ROTARY, KERNEL): f"kernel {ROTARY}",
    **{(key, "native"): f"native {key}" for key in CPU},
    **{(key, name): f"kernel {name}" for key, name in CPU.items()},
}
"""Op and implementation → what is counted when it runs."""

_CPU_CLASSES = {NORM: kernels.NativeAddRMSNorm, ROTARY: kernels.NativeRotaryEmbedding}

_COUNTED_CPU = """

from dougong.cpu import kernels as cpu_kernels


def counted_kernel(cls, name):
    call = cls.__call__
    if hasattr(call, "__wrapped__"):
        return

    @functools.wraps(call)
    def __call__(self, *args):
        count(f"kernel {name}")
        return call(self, *args)

    cls.__call__ = __call__


counted_kernel(cpu_kernels.NativeAddRMSNorm, "cpu/fused_add_rms_norm")
counted_kernel(cpu_kernels.NativeRotaryEmbedding, "cpu/rotary_embedding")
"""


def install_counted_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the wheel; returns the file of `implementations_that_ran`.

    It wraps native implementations and kernels of the core in every process it is loaded in; here
    that is undone with ``monkeypatch``.
    """
    for key, cls in _CPU_CLASSES.items():
        monkeypatch.setattr(OPS[key], "forward_native", OPS[key].forward_native)
        monkeypatch.setattr(cls, "__call__", cls.__call__)
    wheel = op_wheel()
    Installed(tmp_path / "stubs", monkeypatch).add(replace(wheel, hooks=wheel.hooks + _COUNTED_CPU))
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "counter"))
    return tmp_path / "counter"


def implementations_that_ran(counter: Path) -> dict[tuple[str, str], set[int]]:
    """Op and implementation → processes, of the two ops that the wheel counts."""
    calls = count_calls(counter)
    return {what: set(calls[told]) for what, told in COUNTED_AS.items() if told in calls}
