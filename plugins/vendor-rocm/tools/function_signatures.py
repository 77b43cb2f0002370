"""Signatures of AITER's Python functions, read from its source without running it.

``python -m tools.function_signatures FOLDER`` writes the golden file anew from the folder that
holds an unpacked ``aiter`` package. Ops of the dispatcher have schemas, and a golden file of their
own.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from dougong_rocm import library

GOLDEN = (
    Path(__file__).parents[1] / "tests" / "golden" / "amd_aiter-0.1.7.post2.dev18.functions.json"
)
BESIDE = {"flash_attn_varlen_func": "aiter.ops.mha"}
"""What this wheel does not call, and why is said in `dougong_rocm.attention_aiter`."""


def wanted() -> dict[str, str]:
    """Function → module, of all that the golden file holds."""
    called = {name: call.module for name, call in library.CALLS.items() if call.module}
    return called | BESIDE


def read_source(folder: Path) -> dict[str, str]:
    """Function, with its module → arguments with their defaults, as source.

    Args:
        folder: Holds the package ``aiter``.

    Raises:
        LookupError: A function is not where it was.
    """
    return {
        f"{module}.{name}": _arguments(folder, module, name) for name, module in wanted().items()
    }


def read_golden(path: Path = GOLDEN) -> Mapping[str, str]:
    """What is checked in."""
    content: dict[str, str] = json.loads(path.read_text("utf-8"))
    return content


def signature_of(arguments: str) -> inspect.Signature:
    """To bind calls to; defaults are there, their values are not."""
    (function,) = ast.parse(f"def function({arguments}): ...").body
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    first_default = len(positional) - len(given.defaults)
    parameters = [
        inspect.Parameter(
            one.arg,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if index < first_default else None,
        )
        for index, one in enumerate(positional)
    ]
    parameters += [
        inspect.Parameter(
            one.arg,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is None else None,
        )
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    return inspect.Signature(parameters)


def _arguments(folder: Path, module: str, name: str) -> str:
    path = folder / f"{module.replace('.', '/')}.py"
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                one.annotation = None  # they are no part of how it is called
            return ast.unparse(node.args)
    raise LookupError(f"{module} defines no {name}")


def main(arguments: list[str]) -> int:
    """Write the golden file."""
    GOLDEN.write_text(json.dumps(read_source(Path(arguments[0])), indent=1) + "\n", "utf-8")
    sys.stdout.write(f"{GOLDEN.name} written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
