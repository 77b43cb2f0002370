"""A wheel whose device is not here, and which claims in a data file what its families can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub

NOT_HERE = 'return NotHere("no /dev/fake0; install the driver")'
# Whatever a device or the vendor's runtime would be needed for raises.
CLAIMED = """
from dougong.contracts import Claims, DeviceError, Platform, read_claims, read_families


class StubPlatform(Platform):
    name = {name!r}
    device_type = "fake"
    dispatch_key = "PrivateUse1"
    dist_backend = ""
    visible_devices_env = ""

    def claims(self, arch):
        return read_claims(__package__, arch)

    def families(self):
        return read_families(__package__)

    def facts(self, device_index):
        raise DeviceError("nobody may ask")

    @property
    def runtime(self):
        raise DeviceError("nobody may open it")

    def import_kernels(self):
        raise DeviceError("nobody may load them")

    def get_attn_backends(self):
        return {{"fake/wide": "{package}.platform:Wide", "fake/flash": "{package}.platform:Flash"}}


from dougong.contracts import AttentionLimits
from dougong.reference import ReferenceAttentionBackend


class Flash(ReferenceAttentionBackend):
    name = "fake/flash"
    library = "fake-kernels"
    limits = AttentionLimits(dtypes=frozenset({{"float32", "bfloat16"}}))


class Wide(Flash):
    name = "fake/wide"
    library = "fake-wide-kernels"
    features = frozenset({{"fake.wide"}})
"""
HOOKS = """
from dougong.contracts import Needs
from dougong.ops import register_kernel


@register_kernel("lm_head", name="fake/fast", when=Needs(env={"FAKE_FAST": "1"}))
def fast(hidden, weight):
    return hidden


@register_kernel("linear", name="fake/mm", when=Needs(library="fake-blas"))
def mm(x, weight, bias):
    return x
"""
CLAIMS = """
[generic]
dtypes = ["float32"]

[family.one]
dtypes = ["bfloat16", "float32"]
kv_dtypes = ["bfloat16", "float32"]
kv_block_sizes = [128]

[family.two]
"""


def install_claimed(folder: Path, monkeypatch: pytest.MonkeyPatch, claims: str = CLAIMS) -> str:
    """Install it for this process and its children; the platform's name."""
    stub = Installed(folder, monkeypatch).add(
        Stub(platform_body=CLAIMED, probe=NOT_HERE, hooks=HOOKS)
    )
    (folder / stub.package / stub.package / "claims.toml").write_text(claims)
    return stub.name
