"""A made-up vendor: a golden file, a plugin that calls its ops, and references for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dougong_conformance.ladder.platform_double import Double

SCHEMAS = {
    "acme::rms_norm": "acme::rms_norm(Tensor x, Tensor weight, float eps=1e-06) -> Tensor",
    "acme::write": {
        "schema": "acme::write(Tensor key, Tensor($0! -> ) cache, *, str mode='NZ') -> ()",
        "keys": ["Acme"],
    },
    "acme::cast": {"schema": "acme::cast(Tensor x, int kind) -> Tensor", "meta": True},
    "acme::cast.like": {
        "schema": "acme::cast.like(Tensor x, Tensor other) -> Tensor",
        "meta": False,
    },
}

_FILES = {
    "acme_vendor/__init__.py": "",
    "acme_vendor/plugin.py": """
from dougong.contracts import NotHere, PlatformPlugin
plugin = PlatformPlugin(
    name="acme", requires_contract=">=1.0,<2", probe=lambda: NotHere("no /dev/acme0"),
    platform="acme_vendor.platform:AcmePlatform", hooks="acme_vendor.hooks",
)
""",
    "acme_vendor/platform.py": """
from dougong.contracts import Claims, DeviceFacts, Fault, KernelReport, KernelFault, Platform

class AcmePlatform(Platform):
    name, device_type, dispatch_key = "acme", "acme", "PrivateUse1"
    dist_backend, visible_devices_env = "accl", "ACME_VISIBLE_DEVICES"

    def claims(self, arch):
        return Claims(
            arch=arch, dtypes=("float8_e4m3fn", "float32"), kv_dtypes=("float32",),
            kv_block_sizes=(32,), features=frozenset({"acme.fast"}), graph_capture=True,
            max_steps_in_flight=2, pin_memory=True, async_execution=True,
        )

    def facts(self, device_index):
        raise RuntimeError("there is no device")

    @property
    def runtime(self):
        raise RuntimeError("there is no runtime")

    def import_kernels(self):
        return KernelReport(missing={"acme-kernels": "not installed", "acme-more": "not either"})

    def get_graph_runner_cls(self):
        return "acme_vendor.graph:Graphs"

    def get_device_communicator_cls(self):
        return "acme_vendor.communicator:Communicator"

    def classify_error(self, exc):
        return Fault(KernelFault, "acme 7") if "ACME" in str(exc) else None
""",
    "acme_vendor/hooks.py": """
import torch
from dougong.ops import CustomOp, RMSNorm

@CustomOp.register_oot("rms_norm")
class AcmeRMSNorm(RMSNorm):
    def forward_oot(self, x):
        return torch.ops.acme.rms_norm(x, self.weight, eps=self.eps)
""",
    "acme_references.py": """
import torch
from collections import Counter
from pathlib import Path
from dougong.contracts import KernelReport
from dougong_conformance.ladder import golden, stand_in

def rms_norm(x, weight, eps=1e-6):
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight * FACTOR

FACTOR = 1.0
CALLS = Counter()

def install():
    global CALLS
    known = golden.read_golden(Path(__file__).with_name("acme.schemas.json"))
    CALLS = stand_in.install(known, {"acme::rms_norm": rms_norm}).calls
    return KernelReport(loaded=("acme-kernels 8.1",))
""",
    "dougong_acme-8.1.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: dougong-acme\nVersion: 8.1\n"
    ),
    "dougong_acme-8.1.dist-info/entry_points.txt": (
        "[dougong.platform_plugins]\nacme = acme_vendor.plugin:plugin\n"
    ),
}


def write_golden(folder: Path) -> Path:
    path = folder / "acme.schemas.json"
    path.write_text(json.dumps(SCHEMAS))
    return path


@contextmanager
def installed(folder: Path) -> Iterator[Double]:
    """The vendor's wheel on the path, and a double of it over the simulated device."""
    write_golden(folder)
    for name, text in _FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield Double(
            plugin="acme",
            arch="a9",
            device="sim",
            references="acme_references:install",
            import_path=str(folder),
        )
