"""A platform's graph runner, loaded and held against the contract."""

from __future__ import annotations

import importlib

from dougong.contracts import GraphRunner, GraphSupport, Platform, PluginError
from dougong.platforms.contract_check import check_class


def load_graph_runner(platform: Platform) -> type[GraphRunner] | None:
    """Its class; ``None``: the platform has none.

    Raises:
        ContractError: The class does not fit its contract; every problem of it is listed.
        PluginError: It cannot be loaded, or does not say what it can capture; or the platform
            failed to name it.
    """
    name = platform.name
    try:
        target = platform.get_graph_runner_cls()
    except Exception as exc:
        raise PluginError(
            f"platform {name!r} failed to answer get_graph_runner_cls(): "
            f"{type(exc).__name__}: {exc}",
            plugin=name,
        ) from exc
    if target is None:
        return None
    try:
        module, _, attribute = target.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    except Exception as exc:
        raise PluginError(
            f"the graph runner of platform {name!r} cannot be loaded from {target!r}: "
            f"{type(exc).__name__}: {exc}",
            plugin=name,
        ) from exc
    check_class(found, GraphRunner, subject=f"{target} of platform {name!r}", plugin=name)
    runner_cls: type[GraphRunner] = found
    if not isinstance(runner_cls.support, GraphSupport):
        raise PluginError(
            f"{target} of platform {name!r} has {runner_cls.support!r} as its support; it must be "
            "a GraphSupport",
            plugin=name,
        )
    return runner_cls
