"""Where a Python file mentions a vendor's ops, and with which arguments."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_INQUIRIES = frozenset({"overloads", "name", "namespace", "tags"})
"""Attributes of an op that are no overload; so is everything with an underscore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One mention of a vendor's op.

    Attributes:
        op: ``"npu::npu_rms_norm"``.
        file: Relative to the folder that was scanned.
        line: From 1.
        overload: As written, ``""`` for ``default``; ``None``: the dispatcher chooses.
        num_positional: Arguments without a name.
        keywords: Names of the others, as written.
        literals: Literals among the arguments: position or keyword, and value.
        is_question: Nothing is called: ``hasattr(torch.ops.npu, "npu_rms_norm")``.
        problem: Why it cannot be bound; empty: it can.
    """

    op: str
    file: str
    line: int
    overload: str | None = None
    num_positional: int = 0
    keywords: tuple[str, ...] = ()
    literals: tuple[tuple[int | str, Any], ...] = ()
    is_question: bool = False
    problem: str = ""

    @property
    def place(self) -> str:
        """``"attention.py:41"``."""
        return f"{self.file}:{self.line}"


def read_calls(source: str, file: str, roots: Mapping[str, str]) -> tuple[Call, ...]:
    """Mentions of ops in one file, in the order of their lines.

    Args:
        source: Of the file.
        file: Its name, for `Call.file`.
        roots: Expression → namespace of the ops behind it: ``{"torch.ops.npu": "npu"}``.
    """
    reader = _Reader(file, roots)
    tree = ast.parse(source, filename=file)
    reader.learn_names(tree)
    return tuple(sorted(reader.calls(tree), key=lambda call: call.line))


class _Reader:
    def __init__(self, file: str, roots: Mapping[str, str]) -> None:
        self._file, self._roots = file, roots
        self._known: dict[str, set[str]] = defaultdict(set)
        self._seen: set[int] = set()

    def learn_names(self, tree: ast.AST) -> None:
        """Find what is imported or assigned under another name.

        Scopes are not told apart: a name that means two ops in one file has to fit both.
        """
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        self._known[alias.asname].add(alias.name)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    self._learn(alias.asname or alias.name, f"{node.module}.{alias.name}")
        assigned = [(target, value) for node in ast.walk(tree) for target, value in _pairs(node)]
        for _ in assigned:  # a name may stand for a name that stands further down
            before = sum(map(len, self._known.values()))
            for target, value in assigned:
                for path in self._paths(value):
                    self._learn(ast.unparse(target), path)
            if before == sum(map(len, self._known.values())):
                break
        self._seen |= {
            id(part)
            for _, value in assigned
            if any(self._is_on_the_way(path) for path in self._paths(value))
            for part in ast.walk(value)
        }

    def calls(self, tree: ast.AST) -> Iterator[Call]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from self._called(node)
            elif isinstance(node, (ast.Name, ast.Attribute)):
                yield from self._mentioned(node)

    def _learn(self, name: str, path: str) -> None:
        if name != path and self._is_on_the_way(path):
            self._known[name].add(path)

    def _is_on_the_way(self, path: str) -> bool:
        return any(
            f"{root}.".startswith(f"{path}.") or f"{path}.".startswith(f"{root}.")
            for root in self._roots
        )

    def _paths(self, node: ast.AST) -> set[str]:
        """What an expression may stand for, dotted; nothing: it is no plain name."""
        if isinstance(node, ast.Name):
            return self._known.get(node.id, set()) or {node.id}
        if isinstance(node, ast.Attribute):
            if own := self._known.get(ast.unparse(node)):
                return own
            return {f"{one}.{node.attr}" for one in self._paths(node.value)}
        if found := _asked(node, "getattr"):
            return {f"{one}.{found[1]}" for one in self._paths(found[0])}
        return set()

    def _ops(self, node: ast.AST) -> list[tuple[str, str | None]]:
        """Ops and overloads that an expression may be."""
        found = []
        for path in sorted(self._paths(node)):
            for root, namespace in self._roots.items():
                if path.startswith(f"{root}."):
                    op, _, rest = path[len(root) + 1 :].partition(".")
                    overload = rest.replace("default", "", 1) if rest else None
                    found.append((f"{namespace}::{op}", overload))
        return found

    def _called(self, node: ast.Call) -> Iterator[Call]:
        if found := _asked(node, "hasattr"):
            namespace = ast.Attribute(value=found[0], attr=found[1], ctx=ast.Load())
            self._pass_over(node)
            for op, overload in self._ops(namespace):
                yield self._call(node, op, overload, is_question=True)
            return
        ops = self._ops(node.func)
        if ops:
            self._pass_over(node.func)
        for op, overload in ops:
            if overload and _is_inquiry(overload):
                yield self._call(node, op, None, is_question=True)
            else:
                yield self._with_arguments(node, op, overload)

    def _with_arguments(self, node: ast.Call, op: str, overload: str | None) -> Call:
        starred = [ast.unparse(one) for one in node.args if isinstance(one, ast.Starred)]
        starred += [f"**{ast.unparse(one.value)}" for one in node.keywords if one.arg is None]
        literals = [(place, _literal(one)) for place, one in enumerate(node.args)]
        named = [(one.arg, _literal(one.value)) for one in node.keywords if one.arg]
        return self._call(
            node,
            op,
            overload,
            num_positional=len(node.args),
            keywords=tuple(one.arg for one in node.keywords if one.arg),
            literals=tuple((place, found[0]) for place, found in (*literals, *named) if found),
            problem=f"{', '.join(starred)} cannot be bound: write the arguments" if starred else "",
        )

    def _mentioned(self, node: ast.Name | ast.Attribute) -> Iterator[Call]:
        if id(node) in self._seen or not isinstance(node.ctx, ast.Load):
            return
        ops = self._ops(node)
        is_root = bool(self._paths(node) & self._roots.keys())
        if ops or is_root:
            self._pass_over(node)
        for op, overload in ops:
            if overload and _is_inquiry(overload):
                yield self._call(node, op, None, is_question=True)
            else:
                yield self._call(node, op, overload, problem="handed on as a value: call it here")
        if is_root:
            for path in sorted(self._paths(node) & self._roots.keys()):
                problem = "handed on as a whole: nothing behind it can be bound"
                yield self._call(node, f"{self._roots[path]}::", None, problem=problem)

    def _call(self, node: ast.expr, op: str, overload: str | None, **more: Any) -> Call:
        return Call(op=op, overload=overload, file=self._file, line=node.lineno, **more)

    def _pass_over(self, node: ast.AST) -> None:
        self._seen |= {id(part) for part in ast.walk(node)}


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets of an assignment with what they are given."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if not isinstance(target, ast.Tuple):
                yield target, node.value
            elif isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(target.elts):
                yield from zip(target.elts, node.value.elts, strict=True)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value


def _asked(node: ast.AST, function: str) -> tuple[ast.expr, str] | None:
    """What is asked of what by ``getattr(what, "name")`` or its like."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[what, ast.Constant(value=str(asked)), *_]):
            return (what, asked) if name == function else None
    return None


def _literal(node: ast.expr) -> tuple[Any] | None:
    """A constant in a tuple, so that ``None`` is told from no constant."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand)
        is_number = inner is not None and isinstance(inner[0], (int, float))
        return (-inner[0],) if inner is not None and is_number else None
    return (node.value,) if isinstance(node, ast.Constant) else None


def _is_inquiry(attribute: str) -> bool:
    first = attribute.partition(".")[0]
    return first.startswith("_") or first in _INQUIRIES
