"""A platform's attention backends, each loaded and held against the contract."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from dougong.contracts import AttentionBackend, Platform, PluginError
from dougong.platforms.contract_check import check_class


def load_backends(platform: Platform) -> dict[str, AttentionBackend]:
    """Every backend of a platform by name, preferred first.

    Raises:
        ContractError: A class does not fit its contract; every problem of it is listed.
        PluginError: A backend cannot be loaded or made, or does not have the name it is listed
            under; or the platform failed to list them.
    """
    backends = {}
    for name, target in _listed(platform).items():
        whose = f"attention backend {name!r} of platform {platform.name!r}"
        backend = _make(target, whose, platform.name)
        if backend.name != name:
            raise PluginError(
                f"{whose} is {target}, whose name is {backend.name!r}; get_attn_backends() must "
                "list it under that name",
                plugin=platform.name,
            )
        backends[name] = backend
    return backends


def _listed(platform: Platform) -> Mapping[str, str]:
    try:
        listed = platform.get_attn_backends()
    except Exception as exc:
        raise PluginError(
            f"platform {platform.name!r} failed to answer get_attn_backends(): "
            f"{type(exc).__name__}: {exc}",
            plugin=platform.name,
        ) from exc
    if not isinstance(listed, Mapping) or not all(
        isinstance(text, str) for item in listed.items() for text in item
    ):
        raise PluginError(
            f"get_attn_backends() of platform {platform.name!r} gave {listed!r}; it must map names "
            "to import strings",
            plugin=platform.name,
        )
    return listed


def _make(target: str, whose: str, plugin: str) -> AttentionBackend:
    try:
        module, _, attribute = target.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    except Exception as exc:
        raise PluginError(
            f"{whose} cannot be loaded from {target!r}: {type(exc).__name__}: {exc}",
            plugin=plugin,
        ) from exc
    check_class(found, AttentionBackend, subject=f"{target}, {whose},", plugin=plugin)
    try:
        backend: AttentionBackend = found()
    except Exception as exc:
        raise PluginError(
            f"{whose} cannot be made: {target}() raised {type(exc).__name__}: {exc}",
            plugin=plugin,
        ) from exc
    return backend
