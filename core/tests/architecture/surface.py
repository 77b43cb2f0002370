"""The published surface as data: what plugins may build on, held against a version.

    python core/tests/architecture/surface.py --write

writes ``public_surface.json`` from ``dougong.contracts``, ``dougong.ops`` and
``dougong.reference``, the hooks and the entry-point group. It refuses when the change needs a
higher ``CONTRACT_VERSION`` than the code has; ``--unreleased`` overrules that, for a contract
version that no wheel was released with.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the imports below, when run as a script

from dougong.contracts.hooks import HOOK_PROJECT, HookSpecs
from dougong.platforms import entry_points
from tests.architecture.surface_changes import compare, needed_level, raised_level

PACKAGES = ("dougong.contracts", "dougong.ops", "dougong.reference")
HOOKS = "hooks of dougong.contracts.hooks.HookSpecs"
GROUP = "entry-point group"
SNAPSHOT = Path(__file__).with_name("public_surface.json")
SPOKEN_DUNDERS = frozenset(
    {"__init__", "__call__", "__bool__", "__iter__", "__len__", "__contains__"}
)
Described = dict[str, Any]


def _text(value: object) -> str:
    """A default or a constant, the same in every process."""
    if isinstance(value, frozenset | set):
        return "{" + ", ".join(sorted(map(repr, value))) + "}"
    if inspect.isclass(value) or inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = (f"{f.name}={_text(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(given)})"
    text = repr(value)
    return f"<{type(value).__name__}>" if " at 0x" in text else text


def _annotation(value: object) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return value if isinstance(value, str) else inspect.formatannotation(value)


def _signature(function: Any) -> Described:
    signature = inspect.signature(function)
    parameters = []
    for parameter in signature.parameters.values():
        entry = {
            "name": parameter.name,
            "kind": parameter.kind.name,
            "type": _annotation(parameter.annotation),
        }
        if parameter.default is not inspect.Parameter.empty:
            entry["default"] = _text(parameter.default)
        parameters.append(entry)
    return {"parameters": parameters, "returns": _annotation(signature.return_annotation)}


def _fields(cls: type) -> list[Described]:
    described = []
    for field in dataclasses.fields(cls):
        entry: Described = {"name": field.name, "type": _annotation(field.type)}
        entry["init"], entry["kw_only"] = field.init, bool(field.kw_only)
        if field.default is not dataclasses.MISSING:
            entry["default"] = _text(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            entry["default"] = f"{_text(field.default_factory)}()"
        described.append(entry)
    return described


def _is_ours(cls: type, root: str) -> bool:
    return cls.__module__.split(".")[0] == root


def _is_spoken(name: str) -> bool:
    """Part of what others may call or override: public, or a dunder that is spoken to by syntax."""
    return not name.startswith("_") or name in SPOKEN_DUNDERS


def _members(cls: type, root: str) -> dict[str, object]:
    """Everything defined on ``cls`` and those of its bases that are of the same root package."""
    found: dict[str, object] = {}
    for base in reversed([base for base in cls.__mro__ if _is_ours(base, root)]):
        found |= {name: member for name, member in vars(base).items() if _is_spoken(name)}
        for name, type_text in inspect.get_annotations(base).items():
            if not name.startswith("_"):
                found.setdefault(name, _Declared(_annotation(type_text)))
    return found


@dataclasses.dataclass(frozen=True)
class _Declared:
    """A class attribute that has a type and no value: an implementer must set it."""

    type: str


def _member(member: object, *, required: bool) -> Described | None:
    if isinstance(member, _Declared):
        return {"kind": "attribute", "type": member.type, "abstract": True}
    if isinstance(member, property):
        abstract = required or bool(getattr(member, "__isabstractmethod__", False))
        returns = _signature(member.fget)["returns"] if member.fget else ""
        return {"kind": "property", "type": returns, "abstract": abstract}
    kind = {classmethod: "classmethod", staticmethod: "staticmethod"}.get(type(member), "method")
    function = getattr(member, "__func__", member)
    if inspect.isfunction(function):
        abstract = required or bool(getattr(function, "__isabstractmethod__", False))
        return {"kind": kind, "abstract": abstract, **_signature(function)}
    if inspect.isclass(member) or inspect.isdatadescriptor(member):
        return None  # a nested class, a slot: nothing that others call or implement by itself
    return {"kind": "attribute", "value": _text(member), "abstract": False}


def _class(cls: type) -> Described:
    root = cls.__module__.split(".")[0]
    described: Described = {"kind": "class"}
    described["bases"] = sorted(b.__name__ for b in cls.__mro__[1:] if b is not object)
    if issubclass(cls, enum.Enum):
        return described | {"kind": "enum", "values": {m.name: _text(m.value) for m in cls}}
    fields: set[str] = set()
    generated: set[str] = set()
    if dataclasses.is_dataclass(cls):
        params = getattr(cls, "__dataclass_params__")  # noqa: B009 - typeshed does not declare it
        described |= {"kind": "dataclass", "frozen": params.frozen, "fields": _fields(cls)}
        fields = {field.name for field in dataclasses.fields(cls)}
        generated = {"__init__"}
    is_protocol = bool(getattr(cls, "_is_protocol", False))
    members = {}
    for name, member in sorted(_members(cls, root).items()):
        if name in fields | generated or (is_protocol and name == "__init__"):
            continue
        entry = _member(member, required=is_protocol)
        if entry is not None:
            members[name] = entry
    return described | {"protocol": is_protocol, "members": members}


def describe(value: object) -> Described:
    """One published object as plain data."""
    if inspect.isclass(value):
        return _class(value)
    if inspect.isroutine(value) and callable(value):
        return {"kind": "function", **_signature(value)}
    if inspect.ismodule(value):
        return {"kind": "module"}
    return {"kind": "constant", "type": type(value).__name__, "value": _text(value)}


def describe_hooks(specs: type, project: str) -> Described:
    """Hooks by name: what the core calls them with, and what it takes back."""
    described: Described = {}
    for name, spec in vars(specs).items():
        if not name.startswith(f"{project}_"):
            continue
        signature = _signature(spec)
        options = getattr(spec, f"{project}_spec", {})
        described[name] = {
            "arguments": {entry["name"]: entry["type"] for entry in signature["parameters"][1:]},
            "returns": signature["returns"],
            "first_result": bool(options.get("firstresult")),
        }
    return {"kind": "hooks", "hooks": described}


def describe_name(value: str) -> Described:
    """A name that stands in the metadata of wheels, which nobody can change after the fact."""
    return {"kind": "name", "value": value}


def _published(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name in sorted(module.__all__):
        if name not in ("CONTRACT_VERSION", "__version__"):
            yield f"{module.__name__}.{name}", getattr(module, name)


def surface_of(*modules: ModuleType) -> dict[str, Described]:
    """What ``__all__`` of each module publishes, by dotted name."""
    return {name: describe(value) for module in modules for name, value in _published(module)}


def current() -> Described:
    """The surface of this checkout, with its contract version."""
    modules = [importlib.import_module(name) for name in PACKAGES]
    version: str = modules[0].CONTRACT_VERSION
    surface = surface_of(*modules)
    surface[HOOKS] = describe_hooks(HookSpecs, HOOK_PROJECT)
    surface[GROUP] = describe_name(entry_points.GROUP)
    return {"contract_version": version, "surface": surface}


def _pretty(value: Any, indent: str = "") -> str:
    """JSON with one line per member, so that a change of one member is a change of one line."""
    flat = json.dumps(value, sort_keys=True)
    if len(indent) + len(flat) <= 160 or not isinstance(value, dict | list):
        return flat
    inner = indent + " "
    if isinstance(value, list):
        rows, ends = [_pretty(item, inner) for item in value], "[]"
    else:
        rows = [f"{json.dumps(key)}: {_pretty(value[key], inner)}" for key in sorted(value)]
        ends = "{}"
    return f"{ends[0]}\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}{ends[1]}"


def main(arguments: list[str]) -> int:
    """Print what changed since the snapshot and, if asked, write the new one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write public_surface.json")
    parser.add_argument("--unreleased", action="store_true", help="no wheel has this version yet")
    asked = parser.parse_args(arguments)
    new = current()
    if SNAPSHOT.exists():
        old = json.loads(SNAPSHOT.read_text())
        changes = compare(old["surface"], new["surface"])
        print("\n".join(map(str, changes)) or "The published surface has not changed.")
        raised = raised_level(old["contract_version"], new["contract_version"])
        if needed_level(changes) > raised and not asked.unreleased:
            print(f"CONTRACT_VERSION must rise: {needed_level(changes).name.lower()}.")
            return 1
    if asked.write:
        SNAPSHOT.write_text(_pretty(new) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
