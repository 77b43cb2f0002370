"""The tree keeps its shape: packages are packages, tests mirror the source, no odds and ends."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

CORE = Path(__file__).parents[2]
SOURCE = CORE / "src" / "dougong"
UNIT = CORE / "tests" / "unit"
ELSEWHERE = CORE / "tests" / "architecture" / "tested_elsewhere.toml"
DRAWERS = {"utils", "util", "common", "helpers", "helper", "misc"}
SUBSTANCE = 12  # statements inside functions; below it a module only declares


def _modules() -> list[Path]:
    return sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


def _does_something(node: ast.AST) -> bool:
    """A statement that is neither a docstring, nor ``...``, nor a definition."""
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return isinstance(node, ast.stmt) and not is_constant and not is_definition


def _statements_in_functions(source: str) -> int:
    """How much a module does, as opposed to declares."""
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inside = {id(n): n for function in functions for n in ast.walk(function)}
    return sum(map(_does_something, inside.values()))


def _has_a_test(module: Path) -> bool:
    """``kv_cache/block_pool.py`` by ``kv_cache/test_block_pool.py`` or ``test_block_pool_*.py``."""
    name = module.stem if module.stem != "__init__" else module.parent.name
    folder = UNIT / module.parent
    return (folder / f"test_{name}.py").exists() or any(folder.glob(f"test_{name}_*.py"))


def _untested() -> set[str]:
    return {
        module.as_posix()
        for module in _modules()
        if _statements_in_functions((SOURCE / module).read_text()) >= SUBSTANCE
        and not _has_a_test(module)
    }


def _reasons() -> dict[str, str]:
    return {str(k): str(v) for k, v in tomllib.loads(ELSEWHERE.read_text())["modules"].items()}


def test_every_folder_with_python_is_a_package() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    missing = [str(folder) for folder in folders if not (folder / "__init__.py").exists()]
    assert not missing


def test_no_module_is_a_drawer() -> None:
    assert not [str(module) for module in _modules() if module.stem in DRAWERS]


def test_every_folder_of_unit_tests_mirrors_a_room() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}
    strangers = [str(folder) for folder in folders if not (SOURCE / folder).is_dir()]
    assert not strangers


def test_every_module_of_substance_has_a_test_or_a_reason() -> None:
    assert sorted(_untested() - _reasons().keys()) == []


def test_no_reason_outlives_its_need() -> None:
    assert sorted(_reasons().keys() - _untested()) == []


def test_every_reason_names_an_existing_test() -> None:
    for module, test in _reasons().items():
        assert (CORE / "tests" / test).exists(), f"{module}: there is no tests/{test}"
