"""Source of stub plugin wheels: each claims a device of its own and computes on the host."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ONE_DEVICE = (
    'Available((DeviceInfo(index=0, name="Fake 1", uuid="fake-0", arch="fake1", '
    "memory_bytes=8 << 30),))"
)

_PLUGIN = """
from dougong.contracts import Available, DeviceInfo, NotHere, PlatformPlugin
from {package}.counting import count

count("descriptor imported")
{plugin_head}


def probe():
    count("probe")
    {probe}


plugin = PlatformPlugin(
    name={name!r},
    requires_contract={requires_contract!r},
    probe=probe,
    platform={platform!r},
    hooks={hooks!r},
    for_platforms={for_platforms!r},
    auto_select={auto_select!r},
)
"""

_COUNTING = """
import os


def count(what):
    path = os.environ.get("STUB_COUNTER")
    if path:
        with open(path, "a") as file:
            file.write(f"{os.getpid()} {what}\\n")
"""

PLATFORM = """
from dougong.contracts import Claims, DeviceFacts, Platform
from {package}.counting import count

count("platform imported")


class StubPlatform(Platform):
    name = {name!r}
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"
    visible_devices_env = "FAKE_VISIBLE_DEVICES"

    def claims(self, arch):
        return Claims(
            arch=arch, dtypes=("float32",), kv_dtypes=("float32",), collective_dtypes=("float32",)
        )

    def facts(self, device_index):
        gib = 1 << 30
        return DeviceFacts(
            device_index=device_index, name="Fake 1", arch="fake1",
            memory_total_bytes=8 * gib, memory_free_bytes=8 * gib,
        )

    @property
    def facts_open_context(self):
        return False

    @property
    def runtime(self):
        from {package}.runtime import StubRuntime

        if not hasattr(self, "_runtime"):
            self._runtime = StubRuntime()
        return self._runtime
"""

_RUNTIME = """
import contextlib

import torch

from dougong.contracts import MemoryInfo
from dougong.reference import TorchDeviceRuntime
from {package}.counting import count


class _Always:
    def record(self, stream=None): pass
    def query(self): return True
    def synchronize(self): pass
    def wait_event(self, event): pass


class StubRuntime(TorchDeviceRuntime):
    def __init__(self): super().__init__("cpu", pin_memory=False)
    def device_count(self): return 1
    def device_name(self, device_index): return "Fake 1"
    def device_uuid(self, device_index): return "fake-0"
    def torch_device(self, device_index): return torch.device("cpu")
    def memory_info(self, device_index): return MemoryInfo(1 << 30, 1 << 30)
    def set_device(self, device_index): count(f"set_device {{device_index}}")
    def current_device(self): return 0
    def peak_memory_bytes(self): return 0
    def reset_peak_memory(self): pass
    def empty_cache(self): pass
    def synchronize(self): pass
    def new_stream(self): return _Always()
    def use_stream(self, stream): return contextlib.nullcontext()
    def new_event(self): return _Always()
    def empty_host(self, shape, dtype): return torch.empty(tuple(shape), dtype=dtype)
"""

_HOOKS = """
from dougong.contracts import hookimpl
from {package}.counting import count

count("hooks imported")
{hooks}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stub:
    """One plugin wheel; the code pieces are put into its modules as they are.

    Attributes:
        distribution: Of the wheel.
        version: Of the wheel.
        name: Of the entry point.
        package: Import package.
        requires_dist: Of its metadata.
        requires_contract: Of its descriptor.
        plugin_head: Runs when the descriptor's module is imported.
        probe: Body of the probe.
        has_platform: Without: an extension.
        platform_body: Replaces `PLATFORM`, the source of the platform's module.
        hooks: Runs when the hooks module is imported.
        for_platforms: Of the descriptor.
        auto_select: Of the descriptor.
        is_src_layout: The package lies under ``src``.
    """

    distribution: str = "fakeplat"
    version: str = "0.1"
    name: str = "fake"
    package: str = "fakeplat"
    requires_dist: tuple[str, ...] = ("dougong>=0.1,<1",)
    requires_contract: str = ">=1.0,<2"
    plugin_head: str = ""
    probe: str = f"return {ONE_DEVICE}"
    has_platform: bool = True
    platform_body: str | None = None
    hooks: str = ""
    for_platforms: tuple[str, ...] = ()
    auto_select: bool = True
    is_src_layout: bool = False

    @property
    def entry_point(self) -> str:
        """As the metadata has it."""
        return f"{self.package}.plugin:plugin"

    def modules(self) -> dict[str, str]:
        """File name within the package → source."""
        plugin = _PLUGIN.format(
            package=self.package,
            plugin_head=self.plugin_head,
            probe=textwrap.indent(self.probe, "    ").lstrip(),
            name=self.name,
            requires_contract=self.requires_contract,
            platform=f"{self.package}.platform:StubPlatform" if self.has_platform else None,
            hooks=f"{self.package}.hooks",
            for_platforms=self.for_platforms,
            auto_select=self.auto_select,
        )
        platform = self.platform_body or PLATFORM
        return {
            "__init__.py": "",
            "counting.py": _COUNTING,
            "plugin.py": plugin,
            "platform.py": platform.format(package=self.package, name=self.name),
            "runtime.py": _RUNTIME.format(package=self.package),
            "hooks.py": _HOOKS.format(package=self.package, hooks=self.hooks),
        }

    def write_package(self, folder: Path) -> Path:
        """Write the import package into ``folder``."""
        package = folder / self.package
        package.mkdir(parents=True)
        for name, text in self.modules().items():
            (package / name).write_text(text)
        return package

    def write_installed(self, folder: Path) -> Path:
        """Package and metadata as an installer leaves them; ``folder`` goes on the path."""
        self.write_package(folder)
        info = folder / f"{self.distribution.replace('-', '_')}-{self.version}.dist-info"
        info.mkdir()
        requires = "".join(f"Requires-Dist: {line}\n" for line in self.requires_dist)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {self.distribution}\nVersion: {self.version}\n{requires}"
        )
        (info / "entry_points.txt").write_text(
            f"[dougong.platform_plugins]\n{self.name} = {self.entry_point}\n"
        )
        return info

    def write_project(self, folder: Path, backend: str) -> Path:
        """A project for ``"hatchling"`` or ``"setuptools"`` to build.

        Only setuptools leaves metadata in the source folder when it installs editable, which is how
        one distribution comes to be seen on two paths.
        """
        source = folder / "src" if self.is_src_layout else folder
        self.write_package(source)
        where = "src" if self.is_src_layout else "."
        path = f"src/{self.package}" if self.is_src_layout else self.package
        module = {"setuptools": "setuptools.build_meta", "hatchling": "hatchling.build"}[backend]
        (folder / "pyproject.toml").write_text(
            f"""
[build-system]
requires = ["{backend}"]
build-backend = "{module}"

[project]
name = "{self.distribution}"
version = "{self.version}"
dependencies = {list(self.requires_dist)!r}

[project.entry-points."dougong.platform_plugins"]
{self.name} = "{self.entry_point}"

[tool.setuptools.packages.find]
where = ["{where}"]
include = ["{self.package}*"]

[tool.hatch.build.targets.wheel]
packages = ["{path}"]
"""
        )
        return folder


COUNTED_OPS = """
import functools

from torch.nn import functional as F

from dougong.ops import CustomOp, FusedAddRMSNorm, RMSNorm, RotaryEmbedding, register_kernel


def counted(op):
    # A test wants to know whether the core's own implementation ran, too; once per process.
    native = op.forward_native
    if hasattr(native, "__wrapped__"):
        return

    @functools.wraps(native)
    def forward_native(self, *args):
        if not args[0].is_meta:  # planning looks at shapes
            count(f"native {op.key}")
        return native(self, *args)

    op.forward_native = forward_native


counted(FusedAddRMSNorm)
counted(RotaryEmbedding)


@CustomOp.register_oot("fused_add_rms_norm")
class StubAddRMSNorm(FusedAddRMSNorm):
    def forward_oot(self, x, residual):
        count("oot fused_add_rms_norm")
        total = x if residual is None else x + residual
        return F.rms_norm(total, self.weight.shape, self.weight, self.eps), total


@CustomOp.register_oot("rms_norm")
class StubRMSNorm(RMSNorm):
    def forward_oot(self, x):
        count("oot rms_norm")
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


@register_kernel("rotary_embedding", name="{name}/rotary", priority=1)
class StubRotary:
    def __init__(self, op):
        self._native = type(op).forward_native.__wrapped__.__get__(op)

    def __call__(self, positions, q, k):
        count("kernel rotary_embedding")
        return self._native(positions, q, k)
"""
"""Hooks of a wheel of ops, for every Llama: a class for ``fused_add_rms_norm``, a kernel for
``rotary_embedding``, and a class for ``rms_norm``, which the first one leaves no work. Each of
them, and the core's own implementation of the first two, adds a line per call to the file in
STUB_COUNTER."""


def op_wheel(name: str = "stubops") -> Stub:
    """A wheel without a platform that brings `COUNTED_OPS` to every platform."""
    hooks = COUNTED_OPS.replace("{name}", name)
    return Stub(distribution=name, package=name, name=name, has_platform=False, hooks=hooks)


def count_calls(file: Path) -> dict[str, Counter[int]]:
    """What was counted in STUB_COUNTER: what → process → how often."""
    found: dict[str, Counter[int]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        pid, _, what = line.partition(" ")
        found.setdefault(what, Counter())[int(pid)] += 1
    return found
