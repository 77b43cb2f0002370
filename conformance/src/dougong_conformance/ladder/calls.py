"""Every call of a source tree to a vendor's ops, bound to the vendor's published schemas (L0).

A plugin calls the vendor through torch's dispatcher, ``torch.ops.npu.npu_rms_norm(x, weight)``. The
source is read, never run: a call in a branch that no test takes is bound as well. What cannot be
bound is a problem and never passed over: ``*args``, ``**kwargs``, an op that is handed on as a
value. `call_sites` finds the calls, this module says whether they fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dougong_conformance.ladder.call_sites import Call, read_calls
from dougong_conformance.ladder.golden import Golden

_LITERALS: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "SymInt": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "number": (int, float),
    "Tensor": (),
}
"""Type in a schema → literals that it takes; a type that is not here takes any."""


def vendor_calls(
    package_folder: Path | str,
    namespaces: Iterable[str] = (),
    *,
    roots: Mapping[str, str] | None = None,
) -> tuple[Call, ...]:
    """Every call to a vendor's ops in a folder of Python files, by file and line.

    Args:
        package_folder: Searched with all folders in it.
        namespaces: Of ops, ``{"npu", "atb"}``: reached as ``torch.ops.npu``.
        roots: Other expressions under which ops of a namespace are reached:
            ``{"library.aiter": "aiter"}``.
    """
    folder = Path(package_folder)
    known = {f"torch.ops.{name}": name for name in namespaces} | dict(roots or {})
    found = (
        read_calls(path.read_text("utf-8"), path.relative_to(folder).as_posix(), known)
        for path in sorted(folder.rglob("*.py"))
    )
    return tuple(call for calls in found for call in calls)


def bind(calls: Iterable[Call], golden: Golden, namespaces: Iterable[str] = ()) -> tuple[str, ...]:
    """What does not fit, a sentence each; nothing: every call binds, which is rung L0.

    Args:
        calls: As `vendor_calls` found them.
        golden: The vendor's schemas.
        namespaces: That must be seen at least once: an empty scan proves nothing.
    """
    known = tuple(calls)
    problems = [
        f"{call.place}: {call.op}{_written(call)}: {problem}"
        for call in known
        if (problem := _problem(call, golden))
    ]
    seen = {call.op.partition("::")[0] for call in known if not call.is_question}
    problems += [
        f"no call to {name}:: was found, so nothing is shown of it"
        for name in sorted(set(namespaces) - seen)
    ]
    return tuple(problems)


def _written(call: Call) -> str:
    return f".{call.overload}" if call.overload else ""


def _problem(call: Call, golden: Golden) -> str:
    if call.problem:
        return call.problem
    overloads = golden.overloads(call.op)
    if call.overload is not None:
        wanted = f"{call.op}.{call.overload}" if call.overload else call.op
        overloads = tuple(one for one in overloads if one == wanted)
    if not overloads:
        return f"{golden.name or 'the golden file'} has no such op"
    if call.is_question:
        return ""
    misfits = [misfit(call, golden.schemas[one]) for one in overloads]
    return "" if "" in misfits else "; ".join(dict.fromkeys(misfits))


def misfit(call: Call, schema: str) -> str:
    """Why a call does not bind to a schema; empty: it does."""
    import torch

    parsed = torch._C.parse_schema(schema)
    arguments = {one.name: one for one in parsed.arguments}
    positional = [one.name for one in parsed.arguments if not one.kwarg_only]
    if call.num_positional > len(positional):
        return f"{call.num_positional} arguments without a name, and it takes {len(positional)}"
    given = [*positional[: call.num_positional], *call.keywords]
    if unknown := [name for name in call.keywords if name not in arguments]:
        return f"it has no argument {', '.join(unknown)}"
    if twice := sorted({name for name in given if given.count(name) > 1}):
        return f"{', '.join(twice)} given twice"
    missing = [name for name, one in arguments.items() if not one.has_default_value()]
    if missing := [name for name in missing if name not in given]:
        return f"{', '.join(missing)} missing"
    for place, value in call.literals:
        name = positional[place] if isinstance(place, int) else place
        if not _takes(str(arguments[name].type), value):
            return f"{name} is {arguments[name].type}, and {value!r} is given"
    return ""


def _takes(kind: str, value: Any) -> bool:
    if kind.startswith("Optional["):
        return value is None or _takes(kind[len("Optional[") : -1], value)
    if kind not in _LITERALS:
        return True
    if isinstance(value, bool):
        return kind in {"bool", "number"}
    return isinstance(value, _LITERALS[kind])
