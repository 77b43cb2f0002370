"""Asked in a child that loads the whole plugin: its runtime under masks, and a fork afterwards."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

from dougong.platforms import ProbeCache, check_runtime, discover, load_platform, select_platform

from dougong_conformance.drivers.discovery_child import in_fork, masks


def main(name: str, variable: str) -> None:
    """One line of JSON; see `discovery.loaded`."""
    table = discover(probes=ProbeCache())
    loaded = load_platform(select_platform(table, name, tells_faults=False))
    import torch

    before = _is_open(torch, loaded.platform.device_type)
    count = len(loaded.selection.devices)

    def counted(mask: str | None) -> dict[str, Any]:
        if mask is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = mask
        runtime = check_runtime(loaded.platform, loaded.selection.row)
        found = int(runtime.device_count())
        return {"count": found, "uuids": [runtime.device_uuid(index) for index in range(found)]}

    def computed() -> dict[str, Any]:
        runtime = check_runtime(loaded.platform, loaded.selection.row)
        runtime.set_device(0)
        loaded.platform.import_kernels()
        x = torch.arange(6, dtype=torch.float32).to(runtime.torch_device(0))
        return {"sum": float((x * 2).sum().item())}

    answers: dict[str, Any] = {"is_open": before, "fork": in_fork(computed), "masks": {}}
    for label, mask in masks(count) if variable else ():
        if label in ("out of range", "no number"):
            continue  # the probe says what becomes of these
        answers["masks"][label] = in_fork(partial(counted, mask))
    try:
        answers["parent"] = computed()
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        answers["parent"] = {"error": f"{type(exc).__name__}: {exc}"}
    print(json.dumps(answers))  # noqa: T201 - this is the answer


def _is_open(torch: Any, device_type: str) -> bool | None:
    module: Any = getattr(torch, device_type, None)
    if device_type == "cpu" or not hasattr(module, "is_initialized"):
        return None
    return bool(module.is_initialized())
