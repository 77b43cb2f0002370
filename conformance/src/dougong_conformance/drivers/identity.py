"""Who the plugin is, whether its classes fit the contract, and what stands behind its claims."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from dougong.contracts import (
    CONTRACT_VERSION,
    AttentionBackend,
    AttentionPhase,
    AttentionRequest,
    Claims,
    Communicator,
    DeviceRuntime,
    GraphRunner,
    Platform,
    Worker,
)
from dougong.platforms.contract_check import problems_of
from dougong.platforms.versions import check_contract_version

from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_THREADS = 8
_ROUNDS = 25


@procedure("identity.devices")
def devices(session: Session) -> dict[str, Any]:
    """What probe, runtime and facts say of each device."""
    from dougong_conformance.drivers.facts import plain

    answer = session.plugin.descriptor.probe()
    probed = [plain(device) for device in getattr(answer, "devices", ())]
    _ = session.device
    runtime, platform = session.runtime, session.platform
    return {
        "probed": probed,
        "count": runtime.device_count(),
        "uuids": [runtime.device_uuid(one["index"]) for one in probed],
        "names": [runtime.device_name(one["index"]) for one in probed],
        "facts": [plain(platform.facts(one["index"])) for one in probed],
        "torch": [str(runtime.torch_device(one["index"])) for one in probed],
        "current": runtime.current_device(),
    }


@procedure("identity.names")
def names(session: Session) -> dict[str, Any]:
    """Names of platform and descriptor, and whether torch knows what they name."""
    platform, descriptor = session.platform, session.plugin.descriptor
    return {
        "platform": platform.name,
        "descriptor": descriptor.name,
        "device_type": platform.device_type,
        "is_device_type": _is_device(platform.device_type),
        "dispatch_key": platform.dispatch_key,
        "is_dispatch_key": _is_dispatch_key(platform.dispatch_key),
        "dist_backend": platform.dist_backend,
        "requires_contract": descriptor.requires_contract,
        "takes": {
            version: bool(check_contract_version(descriptor.requires_contract, "it", version))
            for version in (CONTRACT_VERSION, _next_major(CONTRACT_VERSION), "0.1")
        },
        "contract": CONTRACT_VERSION,
    }


@procedure("identity.contract_problems")
def contract_problems(session: Session) -> dict[str, list[str]]:
    """Problems of all classes that the plugin names: ``missing``, ``unknown`` and ``other``."""
    found: dict[str, list[str]] = {"missing": [], "unknown": [], "other": []}
    for what, cls, contract in _classes(session):
        if isinstance(cls, str):
            found["other"].append(f"{what}: {cls}")
            continue
        for problem in problems_of(cls, contract):
            kind = "other"
            if problem.startswith("required "):
                kind = "missing"
            elif "nobody calls it" in problem:
                kind = "unknown"
            found[kind].append(f"{what}: {problem}")
    return found


@procedure("identity.thread_problems")
def thread_problems(session: Session) -> list[str]:
    """Questions asked by many threads at once whose answers differ from those given to one."""
    platform = session.platform
    answer = session.plugin.descriptor.probe()
    arch = next((one.arch for one in getattr(answer, "devices", ())), "")
    request = _request(platform.claims(arch))
    backends = session.backends

    def everything(_turn: int) -> tuple[Any, ...]:
        return (
            platform.claims(arch),
            platform.claims("no such family").is_generic,
            platform.get_worker_cls(),
            tuple(platform.get_attn_backends().items()),
            platform.get_attn_backend_cls(request),
            tuple(platform.get_supported_quantization()),
            *(bool(backend.supports(request)) for backend in backends.values()),
        )

    alone = everything(0)
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            together = list(pool.map(everything, range(_THREADS * _ROUNDS)))
    except Exception as exc:  # noqa: BLE001 - a plugin's code; the judge looks at it
        return [f"a question raised {type(exc).__name__}: {exc}"]
    return [f"{one} instead of {alone}" for one in together if one != alone][:3]


@procedure("identity.computes")
def computes(session: Session, x: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Plain torch on the device, in the dtype of the arguments."""
    there, w = x.to(session.device), weight.to(session.device)
    return {
        "product": (there @ w.t()).cpu(),
        "sum": (there + there).cpu(),
        "cast": there.float().cpu(),
    }


@procedure("identity.served")
def served(session: Session) -> dict[str, Any]:
    """What stands behind the claims.

    Returns:
        ``kv_dtypes``, ``kv_block_sizes``, ``head_size``: value → backends that take it;
        ``graph_runner``, ``communicator``: import string or ``None``; ``quantization``: kernels
        that are named and registered nowhere.
    """
    platform = session.platform
    answer = session.plugin.descriptor.probe()
    claims = platform.claims(next((one.arch for one in getattr(answer, "devices", ())), ""))
    plain = _request(claims)
    names = {one.candidate.name for one in _implementations(session)}
    return {
        "kv_dtypes": {
            kv: [
                name
                for name in session.backends
                if any(
                    _takes(session, name, plain, dtype=dtype, kv_dtype=kv)
                    for dtype in claims.dtypes
                )
            ]
            for kv in claims.kv_dtypes
        },
        "kv_block_sizes": {
            str(size): [
                name for name in session.backends if _takes(session, name, plain, block_size=size)
            ]
            for size in claims.kv_block_sizes
        },
        "max_head_size": [
            name
            for name in session.backends
            if claims.max_head_size and _takes(session, name, plain, head_dim=claims.max_head_size)
        ],
        "graph_runner": platform.get_graph_runner_cls(),
        "communicator": platform.get_device_communicator_cls(),
        "dist_backend": platform.dist_backend,
        "quantization": [
            one.kernel
            for one in (*claims.quantization, *platform.get_supported_quantization())
            if one.is_native and one.kernel not in names
        ],
    }


@procedure("identity.unknown_compile_backends")
def unknown_compile_backends(session: Session, names: list[str]) -> list[str]:
    """Those that torch.compile does not know."""
    import torch._dynamo as dynamo

    known = dynamo.list_backends(exclude_tags=())
    return [name for name in names if name not in known]


def _takes(session: Session, name: str, plain: AttentionRequest, **changes: Any) -> bool:
    from dataclasses import replace

    return bool(session.backends[name].supports(replace(plain, **changes)))


def _request(claims: Claims) -> AttentionRequest:
    dtype = claims.dtypes[0]
    kv_dtype = dtype if dtype in claims.kv_dtypes else claims.kv_dtypes[0]
    return AttentionRequest(
        num_heads=4,
        num_kv_heads=2,
        head_dim=64,
        dtype=dtype,
        kv_dtype=kv_dtype,
        phase=AttentionPhase.MIXED,
    )


def _implementations(session: Session) -> Iterator[Any]:
    for candidate in session.registry.candidates():
        found = session.registry.find(candidate.key, candidate.name)
        if found is not None:
            yield found


def _classes(session: Session) -> Iterator[tuple[str, Any, type]]:
    """What it is, the class or why there is none, and its contract."""
    platform = session.platform
    yield "platform", type(platform), Platform
    yield "runtime", type(session.runtime), DeviceRuntime
    named: list[tuple[str, str | None, type]] = [
        ("worker", platform.get_worker_cls(), Worker),
        ("communicator", platform.get_device_communicator_cls(), Communicator),
        ("graph runner", platform.get_graph_runner_cls(), GraphRunner),
    ]
    named += [
        (f"attention backend {name}", target, AttentionBackend)
        for name, target in platform.get_attn_backends().items()
    ]
    for what, target, contract in named:
        if target is not None:
            yield what, _loaded(target), contract


def _loaded(target: str) -> Any:
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        return f"{target} cannot be imported: {exc}"


def _is_device(device_type: str) -> bool:
    try:
        torch.device(device_type)
    except RuntimeError:
        return False
    return True


def _is_dispatch_key(key: str) -> bool:
    try:
        torch._C._dispatch_key_parse(key)
    except (RuntimeError, IndexError):
        return False
    return True


def _next_major(version: str) -> str:
    return f"{int(version.split('.')[0]) + 1}.0"
