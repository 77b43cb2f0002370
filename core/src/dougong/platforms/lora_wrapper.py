"""A platform's wrapper for adapters, loaded and held against the contract."""

from __future__ import annotations

import importlib

from dougong.contracts import LoRAWrapper, Platform, PluginError
from dougong.platforms.contract_check import check_class


def lora_wrapper_of(platform: Platform) -> str | None:
    """Import string of its wrapper, which can be loaded; ``None``: it computes no adapters.

    Raises:
        ContractError: The class does not fit its contract; every problem of it is listed.
        PluginError: It cannot be loaded, or the platform failed to name it.
    """
    name = platform.name
    try:
        target = platform.get_punica_wrapper()
    except Exception as exc:
        raise PluginError(
            f"platform {name!r} failed to answer get_punica_wrapper(): {type(exc).__name__}: {exc}",
            plugin=name,
        ) from exc
    if target is not None:
        load_lora_wrapper(target, name)
    return target


def load_lora_wrapper(target: str, platform: str) -> type[LoRAWrapper]:
    """The class that a platform named.

    Args:
        target: ``"package.module:Class"``.
        platform: Its name, for messages.

    Raises:
        ContractError: The class does not fit its contract; every problem of it is listed.
        PluginError: It cannot be loaded.
    """
    try:
        module, _, attribute = target.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    except Exception as exc:
        raise PluginError(
            f"the LoRA wrapper of platform {platform!r} cannot be loaded from {target!r}: "
            f"{type(exc).__name__}: {exc}",
            plugin=platform,
        ) from exc
    check_class(found, LoRAWrapper, subject=f"{target} of platform {platform!r}", plugin=platform)
    wrapper_cls: type[LoRAWrapper] = found
    return wrapper_cls
