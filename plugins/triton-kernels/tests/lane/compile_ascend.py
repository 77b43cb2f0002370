"""Compile for Ascend, with the vendor's triton and its open compiler: as far as those two go.

Run by ``tests/lane/test_compile_ascend.py`` with the Python of an environment that has
``triton-ascend`` and ``ascendnpu-ir``: ``python -m tests.lane.compile_ascend OUT.json CASE...``.
What makes machine code of it (``hivmc``) comes with the vendor's toolkit alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dougong_triton_kernels.ahead import constants, signature
from dougong_triton_kernels.launching import Launch, kernel
from tests.lane.cases import launches

CHIP = "Ascend910B2"
PLANTED = "planted: a norm over 131072 elements at a time"


def to_linalg(launch: Launch) -> str:
    """Through the vendor's triton: the text that its compiler takes."""
    source = import_module("triton.compiler").ASTSource(
        fn=kernel(launch.kernel),
        signature={name: ty for name, ty in signature(launch).items() if ty != "constexpr"},
        constants=constants(launch),
    )
    compiler = import_module("triton.compiler.compiler")
    target = import_module("triton.backends.compiler").GPUTarget("npu", CHIP, 0)
    backend = compiler.make_backend(target)
    options = backend.parse_options({})
    ir = compiler.ir
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module: Any = source.make_ir(
        options, backend.get_codegen_implementation(), backend.get_module_map(), context
    )
    metadata = {"hash": "ahead", "target": target, **vars(options)}
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options)
    for name in ("ttir", "ttadapter"):
        module = stages[name](module, metadata)
    return str(module)


def to_instructions(linalg: str) -> str:
    """Through the vendor's compiler: everything it says. It ends with an error in either case."""
    spec = find_spec("ascendnpuir")
    assert spec is not None
    assert spec.origin is not None
    program = Path(spec.origin).parent / "bin" / "bishengir-compile"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ttadapter")
        source.write_text(linalg, "utf-8")
        done = subprocess.run(
            [
                program,
                source,
                f"--target={CHIP}",
                "--enable-hfusion-compile=true",
                "--enable-hivm-compile=true",
                "--enable-triton-kernel-compile=true",
                "-o",
                Path(folder, "kernel.o"),
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        )
    return done.stdout + done.stderr


def main(out: str, *names: str) -> None:
    """Write ``{case: {"linalg": bytes, "said": [line], "error": text}}``."""
    found = {}
    known = launches("generic")
    norm = known["rms_norm bf16 4096"]
    size = {"SIZE": 131072, "BLOCK": 131072}
    known[PLANTED] = replace(norm, constants={**norm.constants, **size})
    for name in names:
        try:
            linalg = to_linalg(known[name])
            said = to_instructions(linalg)
        except Exception as error:  # noqa: BLE001 - whatever the vendor's code raises is the result
            found[name] = {"linalg": 0, "said": [], "error": f"{type(error).__name__}: {error}"}
            continue
        found[name] = {"linalg": len(linalg), "said": said.splitlines(), "error": ""}
    Path(out).write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
