"""Versions of what stands below the plugin, for the head of a report."""

from __future__ import annotations

from typing import Any

from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("versions.read")
def read(session: Session) -> dict[str, Any]:
    """``contract``: of the core; ``versions``: driver, runtime and kernel libraries by name."""
    from dougong.contracts.version import CONTRACT_VERSION

    kernels = session.kernels
    facts = session.platform.facts(session.device_index)
    versions = {
        "driver": facts.driver_version,
        "runtime": facts.runtime_version,
        **{f"kernels {number}": name for number, name in enumerate(kernels.loaded, start=1)},
        **{f"missing {name}": reason for name, reason in kernels.missing.items()},
    }
    return {
        "contract": CONTRACT_VERSION,
        "versions": {name: text for name, text in versions.items() if text},
    }
