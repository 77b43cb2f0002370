"""A mutant as an installed wheel, so that a real engine, and any child process, finds it by name.

A temporary folder gets metadata with an entry point and three small modules that make the mutant
of the good plugin when they are imported. The descriptor's module imports no more than the mutant's
own file does: keep torch out of the head of files with mutants of discovery.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dougong.contracts import Platform, PlatformPlugin, Registration, RegistrationKind
from dougong.contracts.registration import add_mark, marks_of
from dougong.platforms.entry_points import find_entry_points

from dougong_conformance.selftest.mutant import Mutant
from dougong_conformance.session import PluginUnderTest, load_plugin

BY_NAME = frozenset({"discovery", "worker", "engine", "performance"})
"""Profiles whose checks start engines or children, which find a plugin by its name only."""

_ALSO_BY_NAME = frozenset(
    {
        "identity.uuid_is_stable",
        "identity.no_patches",
        "graph.engine",
        "graph.host_scalars",
        "lora.unload",
        "lora.slot_reuse",
    }
)
"""Further checks that do."""

_METADATA = "Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
_DESCRIPTOR = """from dougong_conformance.selftest.installed import mutant_descriptor
plugin = mutant_descriptor({base!r}, {module!r}, {id!r})
"""
_PLATFORM = """from dougong_conformance.selftest.installed import mutant_platform
MutantPlatform = mutant_platform({base!r}, {module!r}, {id!r})
"""
_HOOKS = """from dougong_conformance.selftest.installed import mutant_hooks
globals().update(mutant_hooks({base!r}, {module!r}, {id!r}))
"""


def mutant_name(id: str) -> str:
    """As typed after ``--platform``."""
    return f"mutant-{id.lower()}"


def is_by_name(mutant: Mutant) -> bool:
    """Whether its killer has to find the mutant by its name, or takes its process along."""
    is_one_more = mutant.killer.startswith(tuple(_ALSO_BY_NAME))
    return is_one_more or mutant.killer.partition(".")[0] in BY_NAME or mutant.needs_process


@contextmanager
def mutated(mutant: Mutant, base: PluginUnderTest) -> Iterator[PluginUnderTest]:
    """A mutant, installed for the time of the block where its killer needs that.

    Args:
        mutant: To make; a witness is welcome too.
        base: The good plugin, as it was loaded.
    """
    if is_by_name(mutant):
        with installed(mutant, base.name) as plugin:
            yield plugin
    else:
        yield mutant.apply(base)


@contextmanager
def installed(mutant: Mutant, base: str) -> Iterator[PluginUnderTest]:
    """A mutant of the plugin named ``base``, to be found by name here and in every child."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "DOUGONG_PLUGINS")}
    with tempfile.TemporaryDirectory(prefix="dougong-mutant-") as folder:
        name = write_wheel(mutant, base, Path(folder))
        sys.path.insert(0, folder)
        path = [folder, before["PYTHONPATH"]] if before["PYTHONPATH"] else [folder]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        os.environ["DOUGONG_PLUGINS"] = name
        importlib.invalidate_caches()
        try:
            yield replace(load_plugin(name), import_path=folder)
        finally:
            sys.path.remove(folder)
            for module in _modules(mutant.id):
                sys.modules.pop(module, None)
            for variable, value in before.items():
                if value is None:
                    os.environ.pop(variable, None)
                else:
                    os.environ[variable] = value


def write_wheel(mutant: Mutant, base: str, folder: Path) -> str:
    """Write what an installer would leave of the mutant's wheel.

    Returns:
        The name under which it is found.
    """
    name, (descriptor, platform, hooks) = mutant_name(mutant.id), _modules(mutant.id)
    terms = {"base": base, "module": mutant.apply.__module__, "id": mutant.id}
    for module, text in ((descriptor, _DESCRIPTOR), (platform, _PLATFORM), (hooks, _HOOKS)):
        (folder / f"{module}.py").write_text(text.format(**terms), encoding="utf-8")
    info = folder / f"{descriptor}-1.0.dist-info"
    info.mkdir(parents=True)
    metadata = _METADATA.format(distribution=descriptor.replace("_", "-"), version="1.0")
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entry = f"[dougong.platform_plugins]\n{name} = {descriptor}:plugin\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")
    return name


def mutant_descriptor(base: str, module: str, id: str) -> PlatformPlugin:
    """The descriptor of a mutant; loads neither the base's platform nor its hooks."""
    good = _described(base)
    changed = _find(module, id).apply(good).descriptor
    _, platform, hooks = _modules(id)
    if changed.platform == good.descriptor.platform:
        changed = replace(changed, platform=f"{platform}:MutantPlatform")
    if changed.hooks == good.descriptor.hooks:
        changed = replace(changed, hooks=hooks)
    return replace(changed, name=mutant_name(id))


def mutant_platform(base: str, module: str, id: str) -> type[Platform]:
    """A class that makes the mutant's platform."""
    platform = _find(module, id).apply(_described(base)).make_platform()
    given: Any = type(platform)
    named = type(
        given.__name__, (given,), {"name": mutant_name(id), "__module__": given.__module__}
    )
    platform.__class__ = named

    def make(cls: type[Platform]) -> Platform:
        return platform

    def start(self: Platform) -> None:
        """Nothing is left to do."""

    members = {"__new__": make, "__init__": start, "__module__": given.__module__}
    found: type[Platform] = type(given.__name__, (named,), members)
    return found


def mutant_hooks(base: str, module: str, id: str) -> dict[str, Any]:
    """Names of a hooks module that registers what the mutant registers."""
    good = _loaded(base)
    changed = _find(module, id).apply(good)
    kept: dict[str, Any] = {}
    if good.descriptor.hooks:
        theirs = vars(importlib.import_module(good.descriptor.hooks))
        kept = {
            name: value
            for name, value in theirs.items()
            if hasattr(value, "dougong_impl")
            and name not in ("dougong_register_ops", "dougong_register_quantization")
        }
    for number, one in enumerate(changed.registrations):
        if one.mark.kind is not RegistrationKind.MODEL:
            kept[f"registered_{number}"] = _marked(one)
    return kept


def _marked(registration: Registration) -> Any:
    if registration.mark not in marks_of(registration.target):
        add_mark(registration.target, registration.mark)
    return registration.target


def _described(base: str) -> PluginUnderTest:
    """The good plugin without its registrations; its platform is loaded when it is made."""
    point = next(point for point in find_entry_points() if point.name == base)
    descriptor = point.load()
    if not isinstance(descriptor, PlatformPlugin):
        raise TypeError(f"{point.value} is no PlatformPlugin")
    return PluginUnderTest(
        name=base,
        distribution=point.distribution,
        version=point.version,
        descriptor=descriptor,
        make_platform=lambda: _make(descriptor),
    )


def _loaded(base: str) -> PluginUnderTest:
    """The good plugin with its registrations, whatever the list of allowed plugins says."""
    from dougong.platforms import PluginHooks, PluginRow, Verdict

    good = _described(base)
    hooks = PluginHooks()
    hooks.load(
        PluginRow(
            name=base,
            distribution=good.distribution,
            version=good.version,
            path="",
            entry_point="",
            verdict=Verdict.CHOSEN,
            plugin=good.descriptor,
        )
    )
    return replace(good, registrations=hooks.registrations)


def _make(descriptor: PlatformPlugin) -> Platform:
    target, _, name = (descriptor.platform or "").partition(":")
    platform: Platform = getattr(importlib.import_module(target), name)()
    return platform


def _find(module: str, id: str) -> Mutant:
    """A mutant, with no more imported than the file it stands in."""
    from dougong_conformance.selftest import mutant as catalogue

    importlib.import_module(module)
    return catalogue.defined(id)


def _modules(id: str) -> tuple[str, str, str]:
    name = f"mutant_{id.lower()}"
    return name, f"{name}_platform", f"{name}_hooks"
