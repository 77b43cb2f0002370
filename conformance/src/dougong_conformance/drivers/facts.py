"""What the plugin says of itself."""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("facts.describe")
def describe(session: Session) -> dict[str, Any]:
    """Fields of ``Facts``; touches no device."""
    platform, descriptor = session.platform, session.plugin.descriptor
    worker = _class_named(platform.get_worker_cls())
    answer = descriptor.probe()
    devices = tuple(getattr(answer, "devices", ()))
    claims = platform.claims(devices[0].arch if devices else "")
    backends = session.backends
    return {
        "platform": platform.name,
        "distribution": f"{session.plugin.distribution} {session.plugin.version}",
        "device_type": platform.device_type,
        "num_devices": len(devices),
        "dtypes": tuple(claims.dtypes),
        "claims": plain(claims),
        "devices": [plain(one) for one in devices],
        "attention": {
            name: None
            if backend.limits is None
            else {**plain(backend.limits), "graph_level": backend.graph_support().level.value}
            for name, backend in backends.items()
        },
        "implementations": [
            {
                "key": one.key,
                "name": one.name,
                "kind": one.kind.value,
                "when": str(one.when),
                "tokens": str(one.tokens) if one.tokens else "",
            }
            for one in session.registry.candidates()
        ],
        "has_graph_runner": platform.get_graph_runner_cls() is not None and claims.graph_capture,
        "has_lora": platform.get_punica_wrapper() is not None,
        "takes_grammar_masks": bool(worker.takes_grammar_masks),
        "makes_vectors": bool(worker.makes_vectors),
    }


def _class_named(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def plain(value: Any) -> Any:
    """Dataclasses, sets and enums as what crosses a process border."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(plain(one) for one in value)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "items"):
        return {str(key): plain(one) for key, one in value.items()}
    return value
