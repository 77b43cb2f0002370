"""Finds, in a model's source, computation that belongs into an op.

What is a tensor is followed through a function: parameters that are annotated as one, what torch
returns, what a call returns that was given one, and their parts. Shapes and dtypes are not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch

COMPUTES_NOTHING = frozenset(
    {"Tensor", "device", "dtype", "get_default_device", "get_default_dtype", "inference_mode"}
)
"""Names of torch that touch no element; dtypes are known by what they are."""

PLAIN_NN = frozenset({"Module", "ModuleDict", "ModuleList", "Parameter"})
"""Names of ``torch.nn`` that hold and do not compute."""

VIEWS = frozenset(
    {
        *("chunk", "detach", "diagonal", "expand", "expand_as", "flatten", "movedim", "narrow"),
        *("permute", "reshape", "select", "split", "split_with_sizes", "squeeze", "swapaxes", "t"),
        *("transpose", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as"),
    }
)
"""Methods of a tensor that give another view of it; one that must copy fails at run time."""

QUESTIONS = frozenset({"device", "dim", "dtype", "element_size", "is_cpu", "nbytes", "ndim"}) | {
    *("numel", "shape", "size", "stride", "data_ptr", "is_contiguous", "requires_grad"),
}
"""What can be asked of a tensor without reading an element; the answer is no tensor."""

_HARMLESS_CALLS = frozenset({"len", "id", "isinstance", "type", "hasattr", "range"})
_CONTAINERS = frozenset(
    name for kind in (dict, list, set, str, tuple) for name in dir(kind) if name[0] != "_"
)
_TENSOR_METHODS = (
    frozenset(name for name in dir(torch.Tensor) if callable(getattr(torch.Tensor, name)))
    - VIEWS
    - QUESTIONS
    - _CONTAINERS
    - frozenset(dir(torch.nn.Module))
)
"""Methods that are a tensor's and nobody else's, so that whoever calls one has a tensor."""

_TENSOR = re.compile(r"\bTensor\b")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place that computes.

    Attributes:
        line: Line.
        what: ``"torch.arange"``, ``".softmax()"``, ``"operator Add"``, or an import's own words.
    """

    line: int
    what: str


def find(source: str) -> list[Finding]:
    """All of them, by line."""
    tree = ast.parse(source)
    found = set(_imports(tree)) | set(_names(tree))
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= set(_Function(function, modules).findings())
    return sorted(found)


def _imports(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("torch.") or (alias.name == "torch" and alias.asname):
                    yield Finding(node.lineno, f"import {alias.name} as {alias.asname}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            allowed = {"torch": {"nn", *COMPUTES_NOTHING}, "torch.nn": PLAIN_NN}
            for alias in node.names:
                if alias.name not in allowed.get(str(node.module), set()):
                    yield Finding(node.lineno, f"from {node.module} import {alias.name}")


def _names(tree: ast.AST) -> Iterator[Finding]:
    """Whatever of torch and of ``nn`` is neither a type nor a holder, called or not."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        match ast.unparse(node.value):
            case "torch":
                known = node.attr == "nn" or node.attr in COMPUTES_NOTHING
                if not known and not isinstance(getattr(torch, node.attr, None), torch.dtype):
                    yield Finding(node.lineno, f"torch.{node.attr}")
            case "nn" | "torch.nn" if node.attr not in PLAIN_NN:
                yield Finding(node.lineno, f"nn.{node.attr}")


class _Function:
    """One function's tensors and what is done to them."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, modules: set[str]) -> None:
        self._function = function
        self._modules = modules
        arguments = function.args
        self._tensors = {
            one.arg
            for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            if one.annotation is not None and _TENSOR.search(ast.unparse(one.annotation))
        }
        for _ in range(3):  # names assigned late and used early, in a loop
            for node in ast.walk(function):
                self._follow(node)

    def findings(self) -> Iterator[Finding]:
        for node in ast.walk(self._function):
            if isinstance(node, ast.expr | ast.stmt):
                what = self._operator(node) or self._method(node)
                if what is not None:
                    yield Finding(node.lineno, what)

    def _method(self, node: ast.AST) -> str | None:
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                is_known = self._is_tensor(owner) and name not in VIEWS | QUESTIONS
                is_other = ast.unparse(owner) in {"self", *self._modules}  # a child, a function
                is_tensors = name in _TENSOR_METHODS and not is_other
                return f".{name}()" if is_known or is_tensors else None
            case _:
                return None

    def _operator(self, node: ast.AST) -> str | None:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                operands = [left, right]
            case ast.AugAssign(target=target, op=op, value=value):
                operands = [target, value]
            case ast.UnaryOp(op=ast.USub() | ast.Invert() as op, operand=operand):
                operands = [operand]
            case ast.Compare(left=left, ops=[op, *_], comparators=comparators):
                if isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn):
                    return None
                operands = [left, *comparators]
            case _:
                return None
        is_product = isinstance(op, ast.MatMult)
        computes = is_product or any(map(self._is_tensor, operands))
        return f"operator {type(op).__name__}" if computes else None

    def _follow(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value) if self._is_tensor(value):
                for target in targets:
                    self._add(target)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                is_declared = _TENSOR.search(ast.unparse(annotation)) is not None
                if is_declared or (value is not None and self._is_tensor(value)):
                    self._add(target)
            case ast.NamedExpr(target=target, value=value) if self._is_tensor(value):
                self._add(target)
            case ast.For(target=target, iter=value) if self._is_tensor(value):
                self._add(target)
            case ast.comprehension(target=target, iter=value) if self._is_tensor(value):
                self._add(target)

    def _add(self, target: ast.expr) -> None:
        self._tensors |= {
            name.id
            for name in ast.walk(target)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        }

    def _is_tensor(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._tensors
            case ast.Attribute(value=value, attr=name):
                return name not in QUESTIONS and self._is_tensor(value)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                if isinstance(function, ast.Name) and function.id in _HARMLESS_CALLS:
                    return False
                if ast.unparse(function).startswith("torch."):
                    return ast.unparse(function).removeprefix("torch.") not in COMPUTES_NOTHING
                if isinstance(function, ast.Attribute) and function.attr in QUESTIONS:
                    return False
                given = (*arguments, *(keyword.value for keyword in keywords))
                return any(map(self._is_tensor, (function, *given)))
            case ast.Subscript(value=value) | ast.Starred(value=value) | ast.Await(value=value):
                return self._is_tensor(value)
            case ast.BinOp(left=left, right=right):
                return self._is_tensor(left) or self._is_tensor(right)
            case ast.UnaryOp(operand=operand):
                return self._is_tensor(operand)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(map(self._is_tensor, parts))
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_tensor(body) or self._is_tensor(orelse)
            case ast.NamedExpr(value=value):
                return self._is_tensor(value)
            case _:
                return False
