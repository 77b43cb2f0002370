"""The platform: identity, capabilities, runtime, and which class does what.

Imported only when this platform is chosen, and then in the planning parent too. So it imports
without torch and without the device's library; both are imported inside the methods that need them.
Classes are named by import strings and loaded by whoever uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar

from dougong.contracts import (
    Claims,
    ConfigChange,
    ConfigView,
    DeviceError,
    DeviceFacts,
    DeviceRuntime,
    Fault,
    KernelReport,
    Platform,
    read_claims,
    read_families,
)

from dougong_sim import driver
from dougong_sim.errors import classify

KERNELS = "sim-kernels"
"""The library that conditions of kernels and backends name."""

_PREFERRED_SEQS = 4
_PREFERRED_TOKENS = 128
_PREFERRED_LEN = 512


class SimPlatform(Platform):
    """The simulated accelerator."""

    name: ClassVar[str] = "sim"
    device_type: ClassVar[str] = "sim"  # as in torch.device("sim")
    dispatch_key: ClassVar[str] = "PrivateUse1"
    dist_backend: ClassVar[str] = "simccl"
    visible_devices_env: ClassVar[str] = driver.VISIBLE_DEVICES_ENV

    def claims(self, arch: str) -> Claims:
        """What a family can do, from the data file; less what the driver was told not to do."""
        claims = read_claims("dougong_sim", arch)
        return claims if driver.runs_behind_host() else replace(claims, async_execution=False)

    def families(self) -> Sequence[str]:
        """Those of the data file."""
        return read_families("dougong_sim")

    def facts(self, device_index: int) -> DeviceFacts:
        """What one device measures, as its driver tells."""
        devices = driver.list_devices()
        if not 0 <= device_index < len(devices):
            raise DeviceError(
                f"sim has {len(devices)} devices here; index {device_index} was asked for",
                device_index=device_index,
            )
        info = devices[device_index]
        return DeviceFacts(
            device_index=device_index,
            name=info.name,
            arch=info.arch,
            memory_total_bytes=info.memory_bytes,
            driver_version=info.driver_version,
            runtime_version=_version_of("torch"),
        )

    @property
    def facts_open_context(self) -> bool:
        """The driver is asked, not the device. Where that is not possible leave this out: the core
        then reads `facts` in a child of its own."""
        return False

    @cached_property
    def runtime(self) -> DeviceRuntime:
        """Every device call of the core. Loads torch and the device's library."""
        from dougong_sim.runtime import SimRuntime

        return SimRuntime()

    def import_kernels(self) -> KernelReport:
        """Load what kernels call; in every worker, after the device is set.

        What is missing is reported, never raised: whatever needs it is passed over with this
        reason. The simulator's kernels are plain torch on its device, so its own library is all.
        """
        from dougong_sim import device

        try:
            device.load()
        except (ImportError, OSError) as error:
            return KernelReport(missing={KERNELS: str(error)})
        return KernelReport(loaded=(f"{KERNELS} {_version_of('dougong-sim') or 'unknown'}",))

    def check_and_update_config(self, config: ConfigView) -> Sequence[ConfigChange]:
        """Values this device prefers, as data: the core applies them, shows them with this
        platform's name, and never overrules the user.

        A simulation computes on the host, and a captured step computes whatever it can hold: so it
        holds little until somebody asks for more.
        """
        longest = int(config.hf_config.get("max_position_embeddings") or _PREFERRED_LEN)
        preferred = {
            "max_num_seqs": (config.max_num_seqs, _PREFERRED_SEQS),
            "max_num_batched_tokens": (config.max_num_batched_tokens, _PREFERRED_TOKENS),
            "max_model_len": (config.max_model_len, min(longest, _PREFERRED_LEN)),
        }
        return tuple(
            ConfigChange(field, value, "a simulated device computes on the host")
            for field, (asked, value) in preferred.items()
            if asked is None  # nobody decided yet
        )

    def get_attn_backends(self) -> Mapping[str, str]:
        """Preferred first. The reference stays: where the first says no, it serves, and says so."""
        return {
            "sim/tiles": "dougong_sim.attention:TileAttentionBackend",
            "reference/torch": "dougong.reference:ReferenceAttentionBackend",
        }

    def get_device_communicator_cls(self) -> str:
        """Collectives between devices."""
        return "dougong_sim.communicator:SimCommunicator"

    def get_graph_runner_cls(self) -> str | None:
        """Capture and replay."""
        return "dougong_sim.graph:SimGraphRunner"

    def classify_error(self, exc: BaseException) -> Fault | None:
        """Name the driver's errors in the core's terms."""
        return classify(exc)


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
