"""What loading the plugin changed in the core, in torch, in pytest and in this suite.

`note_before` is called before the plugin is known to the process. Values are kept themselves, not
their ids: an id may be given to another object once the first one is gone.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

CORE = "dougong"
SUITE = "dougong_conformance"
TORCH = (
    *("torch", "torch._tensor", "torch.functional", "torch.linalg", "torch.fft", "torch.special"),
    *("torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.modules.module"),
    *("torch.nn.parameter", "torch._C._nn", "torch._C._linalg", "torch.autograd", "torch.random"),
    *("torch.library", "torch._ops", "torch._custom_ops", "torch.serialization", "torch.storage"),
    *("torch.accelerator", "torch.testing", "torch.testing._comparison", "torch.utils.data"),
    *("torch.distributed", "torch.distributed.distributed_c10d", "torch.overrides"),
    *("torch.amp", "torch.compiler", "torch._compile", "torch.fx", "torch.jit", "torch.export"),
)
PYTEST = ("pytest", "_pytest", "pluggy")
_LEFT_OUT = ("dougong.cli.plugin_files", "dougong.testing")
_DECOMPOSITIONS = "torch._decomp"

Place = tuple[str, str]
"""Name of a module or class, name of its attribute."""

_before: dict[Place, Any] = {}


def note_before() -> None:
    """Import what may be patched, and note it; called once, before the plugin is loaded."""
    _before.update(dict(_watched()))


@procedure("patches.seen")
def seen(session: Session) -> dict[str, Any]:
    """What the plugin and its kernels changed until now.

    Returns:
        ``is_known``: something was noted before; ``replaced``: attributes that are now another
        object; ``added``: new ones, among which those of a registered device.
    """
    if not _before:
        return {"is_known": False, "replaced": [], "added": []}
    _ = session.kernels
    replaced, added = changes(_before, dict(_watched()))
    return {"is_known": True, "replaced": replaced, "added": added}


def changes(before: Mapping[Place, Any], after: Mapping[Place, Any]) -> tuple[list[str], list[str]]:
    """Attributes that were replaced or removed, and new ones in what was watched before.

    A new attribute of a class that hides an inherited one replaces it.
    """
    replaced = [
        f"{where}.{name}: {_told(value)} became {_told(after.get((where, name)))}"
        for (where, name), value in before.items()
        if not _is_same(after.get((where, name)), value)
    ]
    owners = {where for where, _ in before}
    added = []
    for (where, name), value in after.items():
        if (where, name) in before or where not in owners or not _is_foreign(value):
            continue
        if hidden := _hidden(where, name):
            replaced.append(f"{where}.{name}: {_told(hidden)} became {_told(value)}")
        else:
            added.append(f"{where}.{name}")
    return sorted(replaced), sorted(added)


def _is_same(now: Any, then: Any) -> bool:
    return bool(now == then) if isinstance(then, str) else now is then or _wraps_itself(now, then)


def _wraps_itself(now: Any, then: Any) -> bool:
    """Whether torch wrapped its own, as it does when parts of it are loaded late; no code of others
    is among what runs."""
    folder = os.path.dirname(str(_module("torch").__file__)) + os.sep
    for _ in range(8):
        code = getattr(now, "__code__", None)
        if code is None or not code.co_filename.startswith(folder):
            return False
        now = getattr(now, "__wrapped__", None)
        if now is then:
            return True
    return False


def _hidden(where: str, name: str) -> Any:
    """What a class would have under this name if it did not define it itself."""
    module, _, cls = where.rpartition(".")
    found = getattr(sys.modules.get(module), cls, None)
    bases = found.__mro__[1:] if isinstance(found, type) else ()
    return next((vars(base)[name] for base in bases if name in vars(base)), None)


def _watched() -> Iterator[tuple[Place, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # looking at deprecated names is no use of them
        for name in (*_core_modules(), *_suite_modules(), *TORCH, *_pytest_modules()):
            yield from _attributes(name, _module(name))
    yield from _decompositions()
    yield from _dispatcher()


def _attributes(name: str, module: Any) -> Iterator[tuple[Place, Any]]:
    is_core = name.partition(".")[0] == CORE
    for key, value in list(vars(module).items()) if module is not None else ():
        is_constant = is_core and key.isupper() and not isinstance(value, str)
        is_device_module = name == "torch" and isinstance(value, ModuleType)
        if _is_code(value) or is_constant or is_device_module:
            yield (name, key), value
        if isinstance(value, type) and value.__module__ == name:
            where = f"{name}.{value.__qualname__}"
            for member, code in list(vars(value).items()):
                if _is_code(code) or isinstance(code, (property, classmethod, staticmethod)):
                    yield (where, member), code
    if name == "torch":
        yield from _tensor(module)


def _tensor(torch: Any) -> Iterator[tuple[Place, Any]]:
    """torch.Tensor stands in a module of another name."""
    for member, code in list(vars(torch.Tensor).items()):
        if _is_code(code) or isinstance(code, (property, classmethod, staticmethod)):
            yield ("torch.Tensor", member), code


def _decompositions() -> Iterator[tuple[Place, Any]]:
    table = getattr(_module(_DECOMPOSITIONS), "decomposition_table", {})
    for op, function in list(table.items()):
        yield (f"{_DECOMPOSITIONS}.decomposition_table", str(op)), function


def _dispatcher() -> Iterator[tuple[Place, Any]]:
    """Kernels of torch's own ops by dispatch key; those of a new device are additions."""
    core: Any = _module("torch._C")
    for op in core._dispatch_get_all_op_names():
        if op.startswith("aten::"):
            for line in core._dispatch_dump(op).splitlines():
                key, mark, kernel = line.partition(": registered at ")
                if mark:
                    yield (f"kernels of {op}", key), kernel


def _is_code(value: Any) -> bool:
    return callable(value) and not isinstance(value, ModuleType)


def _is_foreign(value: Any) -> bool:
    """Code of none of those that are watched: their own lazy imports are no change."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    root = str(name or "").partition(".")[0]
    return not isinstance(value, str) and root not in (CORE, SUITE, "torch", *PYTEST)


def _core_modules() -> tuple[str, ...]:
    core = importlib.import_module(CORE)
    names = (one.name for one in pkgutil.walk_packages(core.__path__, f"{CORE}.", _ignore))
    return (
        CORE,
        *(one for one in names if not one.startswith(_LEFT_OUT) and "__main__" not in one),
    )


def _suite_modules() -> tuple[str, ...]:
    """What serves calls in this process: loaded before any plugin is."""
    return tuple(sorted(one for one in list(sys.modules) if one.partition(".")[0] == SUITE))


def _pytest_modules() -> tuple[str, ...]:
    """Those that are loaded with pytest itself; none where it is not installed."""
    if _module("pytest") is None:
        return ()
    return tuple(sorted(one for one in list(sys.modules) if one.partition(".")[0] in PYTEST))


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception:  # noqa: BLE001 - what cannot be imported cannot be patched either
        return None


def _ignore(name: str) -> None:
    """A package that cannot be imported is none of a plugin's changes."""


def _told(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return value[:120]
    module = getattr(value, "__module__", "") or type(value).__module__
    name = getattr(value, "__qualname__", "") or type(value).__qualname__
    return f"{module}.{name}"
