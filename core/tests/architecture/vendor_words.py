"""Find vendor and device words in Python source: names, attributes, imports and string constants.

Docstrings and comments are not read: they may explain what the code must not say.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

VENDOR_WORDS = frozenset(
    {
        "aiter",
        "amd",
        "ascend",
        "cann",
        "cublas",
        "cuda",
        "cudagraph",
        "cudnn",
        "cutlass",
        "gaudi",
        "habana",
        "hccl",
        "hip",
        "hpu",
        "huawei",
        "intel",
        "ipex",
        "mlu",
        "mps",
        "musa",
        "nccl",
        "npu",
        "nvidia",
        "nvml",
        "rccl",
        "rocm",
        "tpu",
        "triton",
        "xccl",
        "xpu",
    }
)
# torch's own name for "whatever device is here"; the English word stays free for messages.
TORCH_ONLY_WORDS = frozenset({"accelerator"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One word that should not be there."""

    line: int
    word: str
    text: str


def words_of(text: str) -> set[str]:
    """Lower-case words of an identifier or a sentence: ``HipRunner_v2`` gives hip, runner, v."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    spaced = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", spaced)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", spaced)}


def _docstrings(tree: ast.AST) -> set[int]:
    """Ids of the constant nodes that are docstrings."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body[:1]:
                case [ast.Expr(value=ast.Constant(value=str()) as constant)]:
                    found.add(id(constant))
    return found


def _texts(node: ast.AST) -> Iterator[str]:
    """Every identifier and string that stands on this node itself."""
    match node:
        case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
            yield text
        case ast.keyword(arg=str() as text) | ast.Constant(value=str() as text):
            yield text
        case ast.Constant(value=bytes() as raw):
            yield raw.decode("latin-1")
        case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text) | ast.ClassDef(name=text):
            yield text
        case ast.alias(name=text, asname=other):
            yield text
            yield other or ""
        case ast.ImportFrom(module=str() as text):
            yield text
        case ast.ExceptHandler(name=str() as text) | ast.MatchAs(name=str() as text):
            yield text
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names


def _is_device_type(node: ast.expr) -> bool:
    """``<anything called device>.type``, whatever it is then compared with."""
    match node:
        case ast.Attribute(attr="type", value=owner):
            name = getattr(owner, "attr", None) or getattr(owner, "id", None)
            return isinstance(name, str) and "device" in words_of(name)
    return False


def _compares_device_type(node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=left, comparators=others):
            return any(_is_device_type(side) for side in [left, *others])
        case ast.Match(subject=subject):
            return _is_device_type(subject)
    return False


def _is_torch_only_word(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=text, value=ast.Name(id="torch")):
            return text in TORCH_ONLY_WORDS
        case ast.ImportFrom(module="torch", names=names):
            return any(alias.name in TORCH_ONLY_WORDS for alias in names)
        case ast.Constant(value=str() as text) | ast.alias(name=text):
            return any(text in (word, f"torch.{word}") for word in TORCH_ONLY_WORDS)
    return False


def find(source: str) -> list[Finding]:
    """Every vendor word and every comparison of a device's type in ``source``, by line."""
    tree = ast.parse(source)
    skipped = _docstrings(tree)
    findings = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        line = getattr(node, "lineno", 0)
        for text in _texts(node):
            findings += [Finding(line, word, text) for word in words_of(text) & VENDOR_WORDS]
        if _compares_device_type(node):
            findings.append(Finding(line, "device.type", ast.unparse(node)[:80]))
        if _is_torch_only_word(node):
            findings.append(Finding(line, "torch.accelerator", ast.unparse(node)[:80]))
    return sorted(findings, key=lambda finding: finding.line)
