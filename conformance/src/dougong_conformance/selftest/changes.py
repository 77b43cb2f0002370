"""Ways to change a good plugin into another one; the plugin itself stays as it is.

What is made here lives in this process only. A changed plugin for another process is made there
again, by the id of its mutant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from dougong.contracts import (
    Mark,
    Needs,
    Platform,
    PlatformPlugin,
    Registration,
    RegistrationKind,
    TokenRange,
)
from dougong.ops.marks import KernelTerms
from torch.utils._python_dispatch import TorchDispatchMode

from dougong_conformance.selftest import made
from dougong_conformance.session import PluginUnderTest

Compute = Callable[..., Any]
"""``(op, *arguments)`` → results: what stands in an op's place."""


class NotOnThisBase(Exception):
    """The defect cannot be planted in this plugin; the message says why."""


def with_op(
    plugin: PluginUnderTest,
    key: str,
    compute: Compute,
    *,
    mutates: Sequence[str] = (),
    name: str = "",
    tokens: TokenRange | None = None,
    when: Needs | None = None,
) -> PluginUnderTest:
    """A plugin with one implementation of an op, in place of all it had.

    Args:
        plugin: The good one.
        key: The op.
        compute: Called with the op itself, then with its arguments.
        mutates: Arguments it declares to overwrite.
        name: Of the implementation; empty: ``"mutant/<key>"``.
        tokens: Token counts it is meant for; ``None``: any.
        when: Conditions; ``None``: always.
    """

    class Prepared:
        def __init__(self, op: Any) -> None:
            self._op = op

        def __call__(self, *arguments: Any) -> Any:
            return compute(self._op, *arguments)

    Prepared.__name__ = f"Mutant_{key}"
    terms = KernelTerms(when or Needs(), tokens, 1000, tuple(mutates))
    mark = Mark(kind=RegistrationKind.KERNEL, key=key, name=name or f"mutant/{key}", details=terms)
    own = Registration(
        mark=mark,
        target=Prepared,
        plugin=plugin.name,
        distribution=f"{plugin.distribution} {plugin.version}",
    )
    kinds = (RegistrationKind.KERNEL, RegistrationKind.OP_CLASS)
    kept = tuple(
        one for one in plugin.registrations if not (one.mark.key == key and one.mark.kind in kinds)
    )
    return replace(plugin, registrations=(*kept, own))


def around_native(
    plugin: PluginUnderTest,
    key: str,
    change: Callable[..., Any],
    *,
    mutates: Sequence[str] = (),
) -> PluginUnderTest:
    """`with_op` around plain torch: ``change(native, op, *arguments)``."""

    def compute(op: Any, *arguments: Any) -> Any:
        return change(op.forward_native, op, *arguments)

    return with_op(plugin, key, compute, mutates=mutates)


def around_host(plugin: PluginUnderTest, key: str, change: Callable[..., Any]) -> PluginUnderTest:
    """As `around_native`, all of it on the host: for ops whose plain form a device need not run."""

    def compute(op: Any, *arguments: Any) -> Any:
        device = arguments[0].device
        here = deepcopy(op).to("cpu")
        found = change(here.forward_native, here, *(_moved(one, "cpu") for one in arguments))
        if isinstance(found, tuple):
            return tuple(_moved(one, device) for one in found)
        return _moved(found, device)

    return with_op(plugin, key, compute)


def backwards(rows: torch.Tensor) -> torch.Tensor:
    """The last axis the other way round, by an index: a device need not have ``flip``."""
    last = rows.shape[-1] - 1
    return rows[..., last - torch.arange(rows.shape[-1], device=rows.device)]


def _moved(value: Any, device: Any) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def with_platform(
    plugin: PluginUnderTest, members: Mapping[str, Callable[[Platform], Any]]
) -> PluginUnderTest:
    """A plugin whose platform answers some questions otherwise.

    Args:
        plugin: The good one.
        members: Name of a method or property → ``(the good platform)`` → what stands in its place:
            a function of the method's own arguments, or the property's value.
    """

    def make() -> Platform:
        good = plugin.make_platform()
        cls = type(good)
        changed: dict[str, Any] = {}
        for name, give in members.items():
            value = give(good)
            if isinstance(getattr(cls, name, None), property) or not callable(value):
                changed[name] = value
            else:
                changed[name] = _method(value)
        other = type(cls.__name__, (cls,), {**changed, "__module__": cls.__module__})()
        made_platform: Platform = other
        return made_platform

    return replace(plugin, make_platform=make)


def with_claims(plugin: PluginUnderTest, **fields: Any) -> PluginUnderTest:
    """A plugin that claims something else; ``features`` and ``kv_dtypes`` are added to its own."""

    def claims(good: Platform) -> Callable[[str], Any]:
        def answer(arch: str) -> Any:
            found = good.claims(arch)
            changed = dict(fields)
            if "features" in changed:
                changed["features"] = found.features | frozenset(changed["features"])
            if "kv_dtypes" in changed:
                changed["kv_dtypes"] = (*found.kv_dtypes, *changed["kv_dtypes"])
            return replace(found, **changed)

        return answer

    return with_platform(plugin, {"claims": claims})


def with_runtime(
    plugin: PluginUnderTest, members: Mapping[str, Callable[[Any], Any]]
) -> PluginUnderTest:
    """A plugin whose device runtime does some things otherwise.

    Args:
        plugin: The good one.
        members: Name of a method → ``(the good runtime)`` → a function of the method's arguments.
    """
    return with_platform(plugin, {"runtime": lambda good: _changed(good.runtime, members)})


def with_aten(plugin: PluginUnderTest, kernels: Mapping[str, Compute]) -> PluginUnderTest:
    """A plugin whose device computes some of torch's own ops otherwise.

    The vendor's kernels of torch's ops stand behind everything that is plain torch; here they are
    changed for what runs inside the platform's ``inference_mode()``: all that the core runs.

    Args:
        plugin: The good one.
        kernels: Name of an ATen op (``"cumsum"``) → ``(good kernel, *arguments)`` → result.
    """

    def inference_mode(good: Any) -> Callable[[], AbstractContextManager[None]]:
        @contextmanager
        def inside() -> Iterator[None]:
            with good.inference_mode(), _Kernels(kernels):
                yield

        return inside

    return with_runtime(plugin, {"inference_mode": inference_mode})


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own has no types
    def __init__(self, kernels: Mapping[str, Compute]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._kernels = kernels

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Another kernel for the ops that have one."""
        other = self._kernels.get(func.overloadpacket.__name__)
        if other is None:
            # Where no gradients are kept, ops made of others arrive whole.
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {})) if result is NotImplemented else result
        return other(lambda *given: func(*given, **(kwargs or {})), *args)


def with_backends(
    plugin: PluginUnderTest, change: Callable[[str, type[Any]], type[Any]]
) -> PluginUnderTest:
    """A plugin whose attention backends are other classes.

    Args:
        plugin: The good one.
        change: From a backend's name and class to the class in its place, of the same name.
    """

    def backends(good: Platform) -> Callable[[], Mapping[str, str]]:
        def answer() -> Mapping[str, str]:
            return {
                name: made.publish(change(name, made.find(target)))
                for name, target in good.get_attn_backends().items()
            }

        return answer

    return with_platform(plugin, {"get_attn_backends": backends})


def with_backend(plugin: PluginUnderTest, cls: type[Any]) -> PluginUnderTest:
    """A plugin with one attention backend, in place of all it had; the class has its name."""
    return with_platform(
        plugin, {"get_attn_backends": lambda good: lambda: {cls.name: made.publish(cls)}}
    )


def with_named_class(plugin: PluginUnderTest, method: str, cls: type[Any]) -> PluginUnderTest:
    """A plugin that names another class: worker, communicator, graph runner, LoRA wrapper.

    Args:
        plugin: The good one.
        method: Of the platform (``"get_worker_cls"``).
        cls: What it names.
    """
    return with_platform(plugin, {method: lambda good: lambda: made.publish(cls)})


def with_descriptor(plugin: PluginUnderTest, **fields: Any) -> PluginUnderTest:
    """A plugin whose descriptor differs (``probe=...``)."""
    descriptor: PlatformPlugin = replace(plugin.descriptor, **fields)
    return replace(plugin, descriptor=descriptor)


def class_named(plugin: PluginUnderTest, method: str) -> type[Any]:
    """The class that a method of the good platform names."""
    target = getattr(plugin.make_platform(), method)()
    if target is None:
        raise NotOnThisBase(f"platform {plugin.name} names none in {method}")
    return made.find(target)


def _changed(good: Any, members: Mapping[str, Callable[[Any], Any]]) -> Any:
    """An object like ``good`` with other methods, sharing its state."""
    cls = type(good)
    changed = {name: _method(give(good)) for name, give in members.items()}
    other: Any = object.__new__(
        type(cls.__name__, (cls,), {**changed, "__module__": cls.__module__})
    )
    other.__dict__ = good.__dict__
    return other


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return method
