"""Which backend serves a kind of layer: asked once, every refusal kept."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from dougong.contracts import (
    AttentionBackend,
    AttentionRequest,
    ConfigError,
    Platform,
    PluginError,
    Support,
)
from dougong.platforms.contract_check import check_class


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The backend for one kind of layer.

    Attributes:
        backend: The instance.
        passed_over: Name → reason, of those asked before it.
    """

    backend: AttentionBackend
    passed_over: Mapping[str, str]


def choose_backend(
    platform: Platform, request: AttentionRequest, explicit: str | None = None
) -> AttentionChoice:
    """The first of the platform's backends that supports the request; an explicit one or none.

    Raises:
        ConfigError: ``explicit`` is unknown or does not support the request, or nothing does; the
            message lists each candidate with its reason.
        ContractError: A backend's class does not fit its contract; every problem is listed.
        PluginError: A backend could not be loaded or raised when asked.
    """
    backends = platform.get_attn_backends()
    if explicit is not None and explicit not in backends:
        raise ConfigError(
            f"attention_backend={explicit!r} is not among those of platform {platform.name!r}: "
            f"{', '.join(backends)}"
        )
    preferred = explicit or platform.get_attn_backend_cls(request)
    names = [preferred] if preferred is not None else list(backends)
    passed_over: dict[str, str] = {}
    for name in names:
        backend = _load(platform, name, backends)
        verdict = _ask(platform, backend, request)
        if verdict:
            return AttentionChoice(backend, passed_over)
        passed_over[name] = verdict.reason
    what = f"attention_backend={explicit}" if explicit else f"platform {platform.name!r}"
    raise ConfigError(
        f"{what} cannot serve attention with head_dim={request.head_dim}, dtype={request.dtype}, "
        f"KV dtype={request.kv_dtype}, block_size={request.block_size or 'any'}:",
        tuple(f"{name}: {reason}" for name, reason in passed_over.items()),
    )


def _load(platform: Platform, name: str, backends: Mapping[str, str]) -> AttentionBackend:
    whose = f"attention backend {name!r} of platform {platform.name!r}"
    if name not in backends:
        raise PluginError(
            f"{whose} is preferred by get_attn_backend_cls and not in get_attn_backends, "
            f"which has {', '.join(backends)}",
            plugin=platform.name,
        )
    target = backends[name]
    try:
        module, _, attribute = target.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    except Exception as exc:
        raise PluginError(
            f"{whose} cannot be loaded from {target!r}: {type(exc).__name__}: {exc}",
            plugin=platform.name,
        ) from exc
    check_class(found, AttentionBackend, subject=f"{target}, {whose},", plugin=platform.name)
    try:
        backend: AttentionBackend = found()
    except Exception as exc:
        raise PluginError(
            f"{whose} cannot be made: {target}() raised {type(exc).__name__}: {exc}",
            plugin=platform.name,
        ) from exc
    return backend


def _ask(platform: Platform, backend: AttentionBackend, request: AttentionRequest) -> Support:
    try:
        return backend.supports(request)
    except Exception as exc:
        raise PluginError(
            f"attention backend {backend.name!r} of platform {platform.name!r} raised when asked "
            f"whether it supports {request}: {type(exc).__name__}: {exc}",
            plugin=platform.name,
        ) from exc
