"""Ways to change parts of a loaded plugin: platform, runtime, events, worker, classes by name."""

from __future__ import annotations

import copy
import importlib
import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dougong.contracts import Claims, Platform, PlatformPlugin, Registration

from dougong_conformance.session import PluginUnderTest

Members = Callable[[Any], dict[str, Any]]
"""Gives the members of a changed class; its argument is the good class, to be called through."""

_numbers = itertools.count()


def with_platform(plugin: PluginUnderTest, members: Members) -> PluginUnderTest:
    """Members of the platform's class overridden."""

    def make() -> Platform:
        platform = copy.copy(plugin.make_platform())
        platform.__dict__.pop("runtime", None)  # made anew by the changed class
        platform.__class__ = subclass(type(platform), members)
        return platform

    return replace(plugin, make_platform=make)


def with_runtime(plugin: PluginUnderTest, members: Members) -> PluginUnderTest:
    """Members of the runtime's class overridden."""

    def runtime_of(good: Any) -> Any:
        def runtime(platform: Any) -> Any:
            if "_changed_runtime" not in platform.__dict__:
                made = copy.copy(good.runtime.__get__(platform, good))
                made.__class__ = subclass(type(made), members)
                platform.__dict__["_changed_runtime"] = made
            return platform.__dict__["_changed_runtime"]

        return property(runtime)

    return with_platform(plugin, lambda good: {"runtime": runtime_of(good)})


def with_claims(
    plugin: PluginUnderTest, change: Callable[[Claims], dict[str, Any]]
) -> PluginUnderTest:
    """Fields of the claims changed; ``change`` gives those that are new."""

    def members(good: Any) -> dict[str, Any]:
        def claims(platform: Any, arch: str) -> Claims:
            told: Claims = good.claims(platform, arch)
            return replace(told, **change(told))

        return {"claims": claims}

    return with_platform(plugin, members)


def with_named_class(
    plugin: PluginUnderTest, method: str, make: Callable[[type], type]
) -> PluginUnderTest:
    """Another class behind one of the platform's ``get_*_cls`` methods, made of the good one."""
    made: dict[str, str] = {}

    def members(good: Any) -> dict[str, Any]:
        def named(platform: Any) -> str:
            target = getattr(good, method)(platform)
            if target not in made:
                made[target] = importable(make(imported(target)))
            return made[target]

        return {method: named}

    return with_platform(plugin, members)


def with_worker(plugin: PluginUnderTest, members: Members) -> PluginUnderTest:
    """Members of the worker's class overridden."""
    return with_named_class(plugin, "get_worker_cls", lambda good: subclass(good, members))


def with_backends(plugin: PluginUnderTest, members: Members) -> PluginUnderTest:
    """Members of every attention backend's class overridden."""
    made: dict[str, str] = {}

    def changed(target: str) -> str:
        if target not in made:
            made[target] = importable(subclass(imported(target), members))
        return made[target]

    def of_platform(good: Any) -> dict[str, Any]:
        def backends(platform: Any) -> dict[str, str]:
            return {
                name: changed(target) for name, target in good.get_attn_backends(platform).items()
            }

        return {"get_attn_backends": backends}

    return with_platform(plugin, of_platform)


def with_descriptor(plugin: PluginUnderTest, **fields: Any) -> PluginUnderTest:
    """Fields of the descriptor changed."""
    descriptor: PlatformPlugin = replace(plugin.descriptor, **fields)
    return replace(plugin, descriptor=descriptor)


def with_kernel(
    plugin: PluginUnderTest, key: str, function: Callable[..., Any], **terms: Any
) -> PluginUnderTest:
    """One more kernel of an op, tried before all others."""
    from dougong.contracts.registration import marks_of
    from dougong.ops import register_kernel

    name = f"mutant/{key}"
    marked = register_kernel(key, name=name, priority=1000, **terms)(function)
    registration = Registration(
        mark=marks_of(marked)[-1],
        target=marked,
        plugin=plugin.name,
        distribution=f"{plugin.distribution} {plugin.version}",
    )
    kept = tuple(
        one
        for one in plugin.registrations
        if one.mark.key != key or one.mark.kind.value != "op_class"
    )
    return replace(plugin, registrations=(*kept, registration))


def subclass(good: Any, members: Members) -> type:
    """A class that differs in some members and seems to stand where the good one does."""
    return type(good.__name__, (good,), {"__module__": good.__module__, **members(good)})


def importable(cls: type) -> str:
    """An import string that names a class made at run time."""
    name = f"Made{next(_numbers)}"
    setattr(sys.modules[__name__], name, cls)
    return f"{__name__}:{name}"


def imported(target: str) -> type:
    """What an import string names."""
    module, _, name = target.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found
