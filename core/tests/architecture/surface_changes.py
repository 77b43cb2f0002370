"""What a difference between two published surfaces asks of the contract version.

*Major*: a plugin that worked may stop working. *Minor*: it works on, and there is something new.
Two roles decide: what a plugin **calls** may take more and answer less; what a plugin
**implements** (abstract and protocol members) may be neither asked for more nor called with more.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Described = dict[str, Any]
POSITIONAL = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")
VARIADIC = ("VAR_POSITIONAL", "VAR_KEYWORD")


class Level(enum.IntEnum):
    """How far the version must rise."""

    NONE = 0
    MINOR = 1
    MAJOR = 2


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, by dotted name."""

    level: Level
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.level.name.lower()}: {self.subject}: {self.what}"


def needed_level(changes: list[Change]) -> Level:
    """The highest level among the changes."""
    return max((change.level for change in changes), default=Level.NONE)


def raised_level(old: str, new: str) -> Level:
    """How far ``CONTRACT_VERSION`` rose: ``"1.0"`` to ``"1.1"`` is minor."""
    before, after = (tuple(int(part) for part in text.split(".")[:2]) for text in (old, new))
    if after[0] > before[0]:
        return Level.MAJOR
    return Level.MINOR if after > before else Level.NONE


def _union(annotation: str) -> frozenset[str]:
    """The members of a union as written; one member for anything else."""
    try:
        node = ast.parse(annotation, mode="eval").body
    except SyntaxError:
        return frozenset({annotation})
    parts, stack = set(), [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
            stack += [part.left, part.right]
        else:
            parts.add(ast.unparse(part))
    return frozenset(parts)


def _type_change(subject: str, old: str, new: str, *, may_widen: bool) -> Iterator[Change]:
    before, after = _union(old), _union(new)
    if before == after:
        return
    widened = before < after
    harmless = widened if may_widen else after < before
    level = Level.MINOR if harmless else Level.MAJOR
    yield Change(level, subject, f"type {old or 'unstated'} became {new or 'unstated'}")


def _default_change(subject: str, old: Described, new: Described) -> Iterator[Change]:
    if "default" in old and "default" not in new:
        yield Change(Level.MAJOR, subject, "lost its default")
    elif old.get("default") != new.get("default"):
        what = f"default {old.get('default', 'none')} became {new.get('default')}"
        yield Change(Level.MINOR, subject, what)


def _order(parameters: list[Described]) -> list[str]:
    return [entry["name"] for entry in parameters if entry["kind"] in POSITIONAL]


def _signature(subject: str, old: Described, new: Described, *, theirs: bool) -> Iterator[Change]:
    """``theirs``: plugins implement it, so the core is the caller."""
    before = {entry["name"]: entry for entry in old["parameters"]}
    after = {entry["name"]: entry for entry in new["parameters"]}
    for name in before.keys() - after.keys():
        yield Change(Level.MAJOR, f"{subject}({name})", "parameter removed or renamed")
    for name in after.keys() - before.keys():
        optional = "default" in after[name] or after[name]["kind"] in VARIADIC
        level = Level.MINOR if optional and not theirs else Level.MAJOR
        what = "optional parameter added" if optional else "required parameter added"
        yield Change(level, f"{subject}({name})", what)
    kept = _order(old["parameters"])
    if _order(new["parameters"])[: len(kept)] != kept:
        yield Change(Level.MAJOR, subject, "positional parameters reordered")
    for name in before.keys() & after.keys():
        where = f"{subject}({name})"
        if before[name]["kind"] != after[name]["kind"]:
            yield Change(Level.MAJOR, where, f"became {after[name]['kind'].lower()}")
        yield from _default_change(where, before[name], after[name])
        yield from _type_change(
            where, before[name]["type"], after[name]["type"], may_widen=not theirs
        )
    yield from _type_change(f"{subject} ->", old["returns"], new["returns"], may_widen=theirs)


def _fields(subject: str, old: list[Described], new: list[Described]) -> Iterator[Change]:
    before = {entry["name"]: entry for entry in old}
    after = {entry["name"]: entry for entry in new}
    for name in before.keys() - after.keys():
        yield Change(Level.MAJOR, f"{subject}.{name}", "field removed or renamed")
    for name in after.keys() - before.keys():
        optional = "default" in after[name] or not after[name]["init"]
        what = "field added" if optional else "required field added"
        yield Change(Level.MINOR if optional else Level.MAJOR, f"{subject}.{name}", what)
    kept = [entry["name"] for entry in old if entry["init"] and not entry["kw_only"]]
    now = [entry["name"] for entry in new if entry["init"] and not entry["kw_only"]]
    if now[: len(kept)] != kept:
        yield Change(Level.MAJOR, subject, "positional fields reordered")
    for name in before.keys() & after.keys():
        where = f"{subject}.{name}"
        yield from _default_change(where, before[name], after[name])
        yield from _type_change(where, before[name]["type"], after[name]["type"], may_widen=True)


def _member(subject: str, old: Described, new: Described) -> Iterator[Change]:
    if old["kind"] != new["kind"]:
        yield Change(Level.MAJOR, subject, f"{old['kind']} became {new['kind']}")
        return
    if new["abstract"] and not old["abstract"]:
        yield Change(Level.MAJOR, subject, "became abstract")
    elif old["abstract"] and not new["abstract"]:
        yield Change(Level.MINOR, subject, "has a default now")
    if "parameters" in old:
        yield from _signature(subject, old, new, theirs=old["abstract"])
    else:
        yield from _type_change(
            subject, old.get("type", ""), new.get("type", ""), may_widen=old["abstract"]
        )
        if old.get("value") != new.get("value"):
            yield Change(Level.MINOR, subject, f"{old.get('value')} became {new.get('value')}")


def _class(subject: str, old: Described, new: Described) -> Iterator[Change]:
    for base in sorted(set(old["bases"]) - set(new["bases"])):
        yield Change(Level.MAJOR, subject, f"is no {base} any more")
    for base in sorted(set(new["bases"]) - set(old["bases"])):
        yield Change(Level.MINOR, subject, f"is a {base} now")
    if new.get("frozen") and not old.get("frozen", True):
        yield Change(Level.MAJOR, subject, "became frozen")
    yield from _fields(subject, old.get("fields", []), new.get("fields", []))
    before, after = old["members"], new["members"]
    for name in before.keys() - after.keys():
        yield Change(Level.MAJOR, f"{subject}.{name}", "removed or renamed")
    for name in after.keys() - before.keys():
        abstract = after[name]["abstract"]
        what = "abstract member added" if abstract else "member added"
        yield Change(Level.MAJOR if abstract else Level.MINOR, f"{subject}.{name}", what)
    for name in before.keys() & after.keys():
        yield from _member(f"{subject}.{name}", before[name], after[name])


def _enum(subject: str, old: Described, new: Described) -> Iterator[Change]:
    before, after = old["values"], new["values"]
    for name in before.keys() - after.keys():
        yield Change(Level.MAJOR, f"{subject}.{name}", "removed or renamed")
    for name in after.keys() - before.keys():
        yield Change(Level.MINOR, f"{subject}.{name}", "added")
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            yield Change(Level.MAJOR, f"{subject}.{name}", f"{before[name]} became {after[name]}")


def _constant(subject: str, old: Described, new: Described) -> Iterator[Change]:
    yield from _type_change(subject, old["type"], new["type"], may_widen=False)
    if old["value"] != new["value"]:
        yield Change(Level.MINOR, subject, f"{old['value']} became {new['value']}")


def _hooks(subject: str, old: Described, new: Described) -> Iterator[Change]:
    before, after = old["hooks"], new["hooks"]
    for name in before.keys() - after.keys():
        yield Change(Level.MAJOR, f"{subject}: {name}", "removed or renamed")
    for name in after.keys() - before.keys():
        yield Change(Level.MINOR, f"{subject}: {name}", "added")
    for name in before.keys() & after.keys():
        yield from _hook(f"{subject}: {name}", before[name], after[name])


def _hook(subject: str, old: Described, new: Described) -> Iterator[Change]:
    before, after = old["arguments"], new["arguments"]
    for name in before.keys() - after.keys():
        yield Change(Level.MAJOR, f"{subject}({name})", "argument removed or renamed")
    for name in after.keys() - before.keys():
        yield Change(Level.MINOR, f"{subject}({name})", "argument added")
    for name in before.keys() & after.keys():
        yield from _type_change(f"{subject}({name})", before[name], after[name], may_widen=False)
    yield from _type_change(f"{subject} ->", old["returns"], new["returns"], may_widen=True)
    if old["first_result"] != new["first_result"]:
        yield Change(Level.MAJOR, subject, "another number of implementations is asked")


def _object(subject: str, old: Described, new: Described) -> Iterator[Change]:
    if old["kind"] != new["kind"]:
        yield Change(Level.MAJOR, subject, f"{old['kind']} became {new['kind']}")
    elif old["kind"] in ("class", "dataclass"):
        yield from _class(subject, old, new)
    elif old["kind"] == "enum":
        yield from _enum(subject, old, new)
    elif old["kind"] == "function":
        yield from _signature(subject, old, new, theirs=False)
    elif old["kind"] == "constant":
        yield from _constant(subject, old, new)
    elif old["kind"] == "hooks":
        yield from _hooks(subject, old, new)
    elif old["kind"] == "name" and old["value"] != new["value"]:
        yield Change(Level.MAJOR, subject, f"{old['value']} became {new['value']}")


def compare(old: dict[str, Described], new: dict[str, Described]) -> list[Change]:
    """Every difference between two surfaces, gravest first, then by name."""
    changes = [Change(Level.MAJOR, n, "removed or renamed") for n in old.keys() - new.keys()]
    changes += [Change(Level.MINOR, n, "added") for n in new.keys() - old.keys()]
    for name in old.keys() & new.keys():
        changes += _object(name, old[name], new[name])
    return sorted(changes, key=lambda change: (-change.level, change.subject, change.what))
