"""What the core reads first: who this is, and whether its GPUs are here.

Every ``dougong`` command imports this module, on machines without such a GPU too. So it imports
neither torch nor anything of the vendor's, and opens nothing.
"""

from __future__ import annotations

from dougong.contracts import Available, NotHere, PlatformPlugin, ProbeAnswer

from dougong_rocm.driver import VISIBLE_DEVICES_ENV, Machine
from dougong_rocm.installation import INSTALL_TORCH, torch_build


def probe() -> ProbeAnswer:
    """Which GPUs are here, or the first thing that is missing, from the driver up."""
    return probe_machine(Machine())


def probe_machine(machine: Machine) -> ProbeAnswer:
    """As `probe`, of a machine that may be another one's image."""
    if obstacle := machine.obstacle():
        return NotHere(obstacle)
    torch = torch_build()
    if not torch.version:
        return NotHere(f"torch is not installed; {INSTALL_TORCH}")
    if not torch.is_for_hip:
        return NotHere(
            f"torch {torch.version} is not built for ROCm (no libtorch_hip.so); {INSTALL_TORCH}"
        )
    if devices := machine.list_devices():
        return Available(devices)
    return NotHere(f"{VISIBLE_DEVICES_ENV}, ROCR_VISIBLE_DEVICES or another mask leaves no GPU")


plugin = PlatformPlugin(
    name="rocm",
    requires_contract=">=1.0,<2",
    probe=probe,
    platform="dougong_rocm.platform:RocmPlatform",
    hooks="dougong_rocm.hooks",
)
