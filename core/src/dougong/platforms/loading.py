"""From a choice to a platform that can be used: class checked, hooks loaded, rows judged again."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dougong.contracts.device import DeviceRuntime
from dougong.contracts.platform import Platform
from dougong.contracts.registration import Registration
from dougong.errors import ContractError, PluginError
from dougong.log import get_logger
from dougong.platforms.contract_check import check_class
from dougong.platforms.hooks import PluginHooks
from dougong.platforms.probing import caught
from dougong.platforms.selection import Selection, refusal
from dougong.platforms.table import PluginRow, PluginTable, Verdict

T = TypeVar("T")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlatform:
    """All that an engine is told about where it runs.

    Attributes:
        platform: This process's instance.
        selection: Why this one, on which devices, and the table after loading.
        hooks: Of this engine.
        rest: The table once the plugins that were not chosen were tried; ``None``: nobody tries.
    """

    platform: Platform
    selection: Selection
    hooks: PluginHooks
    rest: Future[PluginTable] | None = field(default=None, repr=False, compare=False)

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """What the plugins brought, in load order."""
        return self.hooks.registrations

    @property
    def table(self) -> PluginTable:
        """Every plugin with its verdict after loading; may wait a little for those still tried."""
        return self.rest.result() if self.rest else self.selection.table


def load_platform(selection: Selection) -> LoadedPlatform:
    """Load the chosen platform and its extensions into a registry of their own.

    An extension that fails is listed as broken or refused and left out; whatever it had registered
    is undone.

    Raises:
        PluginError: The platform fails, or two wheels claim one name. The message ends with the
            plugin's sentence.
    """
    hooks = PluginHooks()
    try:
        platform = instantiate(selection.row)
        hooks.load(selection.row)
    except BaseException as exc:
        row = judged(selection.row, exc)
        raise refusal([row], selection.is_explicit) from exc
    loaded: list[PluginRow] = []
    failed: dict[tuple[str, str], PluginRow] = {}
    for row in selection.extensions:
        try:
            hooks.load(row)
            loaded.append(row)
        except BaseException as exc:
            if isinstance(exc, PluginError) and not isinstance(exc, ContractError):
                raise  # a collision: leaving one of the two out would be a silent choice
            failed[row.name, row.path] = judged(row, exc)
            _log.warning("left out: %s", failed[row.name, row.path].sentence())
    table = selection.table.replaced(lambda row: failed.get((row.name, row.path), row))
    selection = replace(selection, table=table, extensions=tuple(loaded))
    return LoadedPlatform(platform=platform, selection=selection, hooks=hooks)


def instantiate(row: PluginRow) -> Platform:
    """The checked platform class of a row, made.

    Raises:
        ContractError: The class does not fit.
        PluginError: The row's descriptor names no platform.
        BaseException: Whatever the plugin's code raises.
    """
    if row.plugin is None or row.plugin.platform is None:
        raise PluginError(f"{row.wheel} brings no platform", plugin=row.name)
    platform = load_class(row.plugin.platform, Platform, row)()
    if platform.name != row.name:
        problem = f"name={platform.name!r}, and its descriptor says {row.name!r}"
        raise ContractError(f"{row.plugin.platform} of {row.wheel}", (problem,), plugin=row.name)
    return platform


def check_runtime(platform: Platform, row: PluginRow) -> DeviceRuntime:
    """The platform's runtime, its class held against the contract; touches no device.

    No part of loading, for a runtime may import torch, which a process without a device does
    without: whoever is about to use the device calls it first.

    Raises:
        ContractError: The class does not fit; every problem is listed.
        PluginError: It cannot be made; the cause is chained.
    """
    try:
        runtime = platform.runtime
    except BaseException as exc:
        raise PluginError(
            f"{row.wheel}: the runtime of platform {row.name} cannot be made: {caught(exc).reason}",
            plugin=row.name,
        ) from exc
    cls = type(runtime)
    subject = f"{cls.__module__}:{cls.__qualname__}, the runtime of {row.wheel},"
    check_class(cls, DeviceRuntime, subject=subject, plugin=row.name)
    return runtime


def load_class(target: str, contract: Callable[..., T], row: PluginRow) -> type[T]:
    """Import a class that a plugin names and check it against its contract.

    Args:
        target: ``"package.module:Class"``.
        contract: One of the abstract classes of ``dougong.contracts`` (typed as what makes a T,
            since an abstract class is no ``type[T]`` to a type checker).
        row: The plugin, for messages.

    Raises:
        ContractError: The class does not fit; every problem is listed.
        PluginError: The string cannot be imported; the cause is chained.
    """
    found = import_object(target, row)
    assert isinstance(contract, type)
    check_class(found, contract, subject=f"{target} of {row.wheel}", plugin=row.name)
    checked: type[T] = found
    return checked


def import_object(target: str, row: PluginRow) -> Any:
    """What an import string names.

    Raises:
        PluginError: The string is malformed or cannot be imported; the cause is chained.
    """
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise PluginError(
            f"{row.wheel} names {target!r}; write it as 'package.module:Class'", plugin=row.name
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except BaseException as exc:
        raise PluginError(
            f"{row.wheel}: {target} cannot be imported: {caught(exc).reason}", plugin=row.name
        ) from exc


def judged(row: PluginRow, exc: BaseException) -> PluginRow:
    """The row of a plugin that failed while it was loaded; call it inside the handler."""
    found = caught(exc)
    if isinstance(exc, ContractError):
        problems = "; ".join(exc.problems)
        return row.with_verdict(Verdict.REFUSED, f"{exc.subject}: {problems}", found.traceback)
    if isinstance(exc, PluginError):
        return row.with_verdict(Verdict.BROKEN, " ".join(str(exc).split()), found.traceback)
    return row.with_verdict(Verdict.BROKEN, f"loading it raised {found.reason}", found.traceback)
