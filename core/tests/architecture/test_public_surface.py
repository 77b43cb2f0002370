"""The published surface changes only together with ``CONTRACT_VERSION``."""

from __future__ import annotations

import json
import sys
import tomllib
from types import ModuleType

import pytest

from tests.architecture.surface import (
    GROUP,
    HOOKS,
    SNAPSHOT,
    current,
    describe_hooks,
    describe_name,
    surface_of,
)
from tests.architecture.surface_changes import Level, compare, needed_level, raised_level

BEFORE = """
from __future__ import annotations
import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

CONTRACT_VERSION = "1.0"
GROUP = "acme.plugins"

@dataclass(frozen=True, slots=True)
class Facts:
    name: str
    memory_bytes: int
    alignment_bytes: int = 64

class Runtime(ABC):
    device_type: str
    max_steps: int = 1

    @property
    @abstractmethod
    def count(self) -> int: ...
    @abstractmethod
    def copy(self, source: str, target: str, *, wait: bool = True) -> bool: ...
    def empty_cache(self) -> None: ...
    def _private(self) -> None: ...

class Sleeper(Protocol):
    def sleep(self, level: int) -> None: ...

class Phase(enum.Enum):
    LOAD = "load"
    SERVE = "serve"

def register(name: str, kind: str = "op") -> str | None: ...

__all__ = ["CONTRACT_VERSION", "GROUP", "Facts", "Phase", "Runtime", "Sleeper", "register"]
"""

# what is changed: (text before, text after)
INCOMPATIBLE = {
    "a name is withdrawn": ('"Phase", ', ""),
    "a parameter is renamed": ("register(name: str", "register(key: str"),
    "parameters change places": (
        'name: str, kind: str = "op"',
        'kind: str = "op", name: str = ""',
    ),
    "a parameter is taken away": (', kind: str = "op"', ""),
    "a parameter loses its default": ('kind: str = "op"', "kind: str"),
    "a required parameter is added": ("register(name: str,", "register(name: str, home: str,"),
    "a parameter becomes keyword-only": ('kind: str = "op")', '*, kind: str = "op")'),
    "a function may answer more": ("-> str | None", "-> str | int | None"),
    "a function takes less": ("(name: str, kind", "(name: bool, kind"),
    "a required field is added": ("memory_bytes: int\n", "memory_bytes: int\n    driver: str\n"),
    "fields change places": (
        "name: str\n    memory_bytes: int\n",
        "memory_bytes: int\n    name: str\n",
    ),
    "an optional field is added in the middle": (
        "    alignment_bytes: int = 64\n",
        "    new: int = 0\n    alignment_bytes: int = 64\n",
    ),
    "a field is taken away": ("    alignment_bytes: int = 64\n", ""),
    "an abstract method is added": (
        "    def empty_cache",
        "    @abstractmethod\n    def new(self) -> int: ...\n    def empty_cache",
    ),
    "a method becomes abstract": (
        "    def empty_cache",
        "    @abstractmethod\n    def empty_cache",
    ),
    "a method is taken away": ("    def empty_cache(self) -> None: ...\n", ""),
    "implementers are called with more": (
        "*, wait: bool = True",
        "*, wait: bool = True, n: int = 0",
    ),
    "implementers are handed another type": ("source: str, target", "source: str | int, target"),
    "a required attribute is added": ("device_type: str", "device_type: str\n    arch: str"),
    "a protocol asks for more": (
        "    def sleep",
        "    def wake(self) -> None: ...\n    def sleep",
    ),
    "a member of an enum is taken away": ('    SERVE = "serve"\n', ""),
    "a member of an enum changes": ('"serve"', '"run"'),
    "a class turns into another kind": ("class Phase(enum.Enum)", "class Phase"),
    "a base class is lost": ("class Runtime(ABC)", "class Runtime"),
}

COMPATIBLE = {
    "a name is added": ('"Phase", ', '"Phase", "ABC", '),
    "an optional parameter is added": ('kind: str = "op"', 'kind: str = "op", home: str = ""'),
    "a default changes": ('kind: str = "op"', 'kind: str = "kernel"'),
    "a function answers less": ("-> str | None", "-> str"),
    "a function takes more": ("(name: str, kind", "(name: str | int, kind"),
    "an optional field is added at the end": (
        "alignment_bytes: int = 64\n",
        "alignment_bytes: int = 64\n    new: int = 0\n",
    ),
    "a method with a body is added": (
        "    def empty_cache",
        "    def new(self) -> int: ...\n    def empty_cache",
    ),
    "implementers may answer more": ("-> bool: ...", "-> bool | None: ..."),
    "a member of an enum is added": ('"serve"\n', '"serve"\n    STOP = "stop"\n'),
    "a constant changes": ('"acme.plugins"', '"acme.platform_plugins"'),
}

UNSEEN = {
    "a private method changes": ("_private(self)", "_private(self, more: int)"),
    "a body changes": ("def empty_cache(self) -> None: ...", "def empty_cache(self) -> None: pass"),
}


def _module(source: str) -> ModuleType:
    module = ModuleType("acme_contracts")
    sys.modules[module.__name__] = module  # dataclasses look their own module up
    try:
        exec(compile(source, module.__name__, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module


def _level(change: tuple[str, str]) -> Level:
    assert change[0] in BEFORE, "the planted change does not apply"
    after = BEFORE.replace(change[0], change[1], 1)
    changes = compare(surface_of(_module(BEFORE)), surface_of(_module(after)))
    return needed_level(changes)


@pytest.mark.parametrize("name", INCOMPATIBLE)
def test_an_incompatible_change_needs_a_major_version(name: str) -> None:
    assert _level(INCOMPATIBLE[name]) is Level.MAJOR


@pytest.mark.parametrize("name", COMPATIBLE)
def test_a_compatible_change_needs_a_minor_version(name: str) -> None:
    assert _level(COMPATIBLE[name]) is Level.MINOR


@pytest.mark.parametrize("name", UNSEEN)
def test_what_nobody_can_see_needs_no_version(name: str) -> None:
    assert _level(UNSEEN[name]) is Level.NONE


HOOKS_BEFORE = """
from __future__ import annotations
import pluggy

hookspec = pluggy.HookspecMarker("acme")

class Specs:
    @hookspec
    def acme_register(self) -> list[str]: ...
    @hookspec
    def acme_step_done(self, stats: int, rank: int | None) -> None: ...
    def _private(self) -> None: ...

__all__: list[str] = []
"""

INCOMPATIBLE_HOOKS = {
    "a hook is taken away": ("    @hookspec\n    def acme_register(self) -> list[str]: ...\n", ""),
    "a hook is renamed": ("acme_step_done", "acme_step_finished"),
    "an argument is renamed": ("stats: int", "counts: int"),
    "an argument is taken away": (", rank: int | None", ""),
    "an argument is of another type": ("stats: int", "stats: str"),
    "an argument may be more": ("stats: int", "stats: int | None"),
    "less may be answered": ("-> list[str]", "-> list[int]"),
    "only the first one is asked": (
        "@hookspec\n    def acme_register",
        "@hookspec(firstresult=True)\n    def acme_register",
    ),
}

COMPATIBLE_HOOKS = {
    "a hook is added": (
        "    def _private",
        "    @hookspec\n    def acme_new(self): ...\n    def _private",
    ),
    "an argument is added": ("stats: int", "stats: int, step: int"),
    "more may be answered": ("-> list[str]", "-> list[str] | None"),
}


def _hooks_level(change: tuple[str, str]) -> Level:
    assert change[0] in HOOKS_BEFORE, "the planted change does not apply"
    sources = (HOOKS_BEFORE, HOOKS_BEFORE.replace(change[0], change[1], 1))
    old, new = ({"hooks": describe_hooks(_module(source).Specs, "acme")} for source in sources)
    return needed_level(compare(old, new))


@pytest.mark.parametrize("name", INCOMPATIBLE_HOOKS)
def test_an_incompatible_change_of_a_hook_needs_a_major_version(name: str) -> None:
    assert _hooks_level(INCOMPATIBLE_HOOKS[name]) is Level.MAJOR


@pytest.mark.parametrize("name", COMPATIBLE_HOOKS)
def test_a_compatible_change_of_a_hook_needs_a_minor_version(name: str) -> None:
    assert _hooks_level(COMPATIBLE_HOOKS[name]) is Level.MINOR


def test_what_is_no_hook_needs_no_version() -> None:
    assert _hooks_level(("_private(self)", "_private(self, more: int)")) is Level.NONE


def test_another_entry_point_group_needs_a_major_version() -> None:
    old, new = ({GROUP: describe_name(group)} for group in ("acme.plugins", "acme.platforms"))
    assert needed_level(compare(old, new)) is Level.MAJOR
    assert compare(old, old) == []


def test_the_surface_has_the_hooks_and_the_group_that_wheels_are_found_by() -> None:
    surface = current()["surface"]
    assert surface[GROUP]["value"] == "dougong.platform_plugins"
    assert surface[HOOKS]["hooks"]["dougong_process_start"]["arguments"] == {
        "role": "str",
        "rank": "int | None",
    }
    # and the core itself is found by it
    declared = tomllib.loads((SNAPSHOT.parents[2] / "pyproject.toml").read_text())["project"]
    assert surface[GROUP]["value"] in declared["entry-points"]


def test_a_version_rises_by_its_parts() -> None:
    assert raised_level("1.9", "2.0") is Level.MAJOR
    assert raised_level("1.9", "1.10") is Level.MINOR
    assert raised_level("1.0", "1.0") is Level.NONE
    assert raised_level("1.2", "1.1") is Level.NONE


def test_the_published_surface_is_the_one_written_down_for_this_contract_version() -> None:
    old, new = json.loads(SNAPSHOT.read_text()), current()
    changes = compare(old["surface"], new["surface"])
    needed, raised = (
        needed_level(changes),
        raised_level(old["contract_version"], new["contract_version"]),
    )
    listed = "\n".join(map(str, changes))
    assert needed <= raised, f"CONTRACT_VERSION must rise ({needed.name.lower()}):\n{listed}"
    assert old == new, f"run: python core/tests/architecture/surface.py --write\n{listed}"
