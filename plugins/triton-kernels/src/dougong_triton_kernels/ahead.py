"""Compile a launch for a chip that is not here, and hold the result against the chip's limits."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from dougong_triton_kernels.launching import Launch, kernel
from dougong_triton_kernels.targets import Target

_TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
}
# Scalar registers spill into lanes of vector registers, not into memory: those are not counted.
_AMD_SPILLS = re.compile(r"\.vgpr_spill_count:\s+(\d+)")
_NVIDIA_SPILLS = re.compile(r"(\d+) bytes spill (?:stores|loads)")
_DIVISIBLE = ["tt.divisibility", 16]
_NEAR = 2**31 - 1
_BINARIES = {"hip": "hsaco", "cuda": "cubin"}


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """What a compiler made of one launch.

    Attributes:
        kernel: As `Launch` has it.
        target: It was compiled for.
        shared_bytes: On-chip memory of one program.
        spills: Vector registers per thread (hip) or bytes (cuda) that go to memory.
        may_spill: The table says that no size of tile keeps this one in registers.
        stages: Text or bytes of each stage by triton's name: ``"ttir"`` to ``"hsaco"``.
    """

    kernel: str
    target: Target
    shared_bytes: int
    spills: int
    may_spill: bool
    stages: Mapping[str, Any] = field(repr=False)

    @property
    def assembly(self) -> str:
        """Of the chip."""
        return str(self.stages["amdgcn" if self.target.backend == "hip" else "ptx"])

    def problems(self) -> tuple[str, ...]:
        """What would go wrong on the chip, as sentences; empty: nothing that can be seen here."""
        found = []
        if not self.stages.get(_BINARIES[self.target.backend]):
            found.append(f"{self.kernel} has no binary for {self.target.name}")
        if self.shared_bytes > self.target.shared_bytes:
            found.append(
                f"{self.kernel} wants {self.shared_bytes} bytes of on-chip memory; "
                f"{self.target.name} gives a program {self.target.shared_bytes}. Use a smaller tile"
            )
        if self.spills and not self.may_spill:
            found.append(
                f"{self.kernel} spills on {self.target.name} ({self.spills}): registers go to "
                "memory in the inner loop. Use a smaller tile or more warps"
            )
        return tuple(found)


def signature(launch: Launch) -> dict[str, str]:
    """Triton's type of each parameter, as its just-in-time compiler would choose.

    An integer of 1 and every constant are compile-time values.
    """
    types = {name: _type(value) for name, value in launch.arguments.items()}
    return {**types, **dict.fromkeys(launch.constants, "constexpr")}


def constants(launch: Launch) -> dict[str, Any]:
    """Compile-time values by parameter name."""
    ones = {name: 1 for name, value in launch.arguments.items() if _type(value) == "constexpr"}
    return {**ones, **launch.constants}


def attributes(launch: Launch, target: Target) -> dict[tuple[int], list[list[Any]]]:
    """What the just-in-time compiler would find of each parameter, by place.

    Numbers that are multiples of 16; tensors, whose memory begins at such an address, as allocators
    give it; and on hip, tensors that lie within 2 GiB, which are read by other instructions.
    """
    found = {}
    for place, value in enumerate(launch.arguments.values()):
        if isinstance(value, torch.Tensor):
            found[place,] = [_DIVISIBLE]
            if target.backend == "hip" and value.untyped_storage().nbytes() <= _NEAR:
                found[place,] = [_DIVISIBLE, ["tt.pointer_range", 32]]
        elif isinstance(value, int) and value != 1 and value % 16 == 0:
            found[place,] = [_DIVISIBLE]
    return found


def compile_ahead(launch: Launch, target: Target) -> Compiled:
    """Compile for a chip of the table; needs triton, and no device.

    Triton must not be interpreting (``TRITON_INTERPRET``).

    Raises:
        TritonMissingError: Triton is not installed.
        ValueError: The target has no compiler.
    """
    if not target.backend:
        raise ValueError(f"{target.name} names no compiler; choose a chip of the table")
    function = kernel(launch.kernel)
    compiler = import_module("triton.compiler")
    gpu = import_module("triton.backends.compiler").GPUTarget
    source = compiler.ASTSource(
        fn=function,
        signature=signature(launch),
        constexprs=constants(launch),
        attrs=attributes(launch, target),
    )
    made = compiler.compile(
        source,
        target=gpu(target.backend, target.arch, target.warp_size),
        options=dict(launch.options),
    )
    stages = dict(made.asm)
    return Compiled(
        kernel=launch.kernel,
        target=target,
        shared_bytes=made.metadata.shared,
        spills=_spills(stages, target),
        may_spill=launch.may_spill,
        stages=stages,
    )


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "*" + _TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "constexpr" if value == 1 else "i32"


def _spills(stages: Mapping[str, Any], target: Target) -> int:
    if target.backend == "hip":
        return sum(int(count) for count in _AMD_SPILLS.findall(stages["amdgcn"]))
    return sum(int(count) for count in _NVIDIA_SPILLS.findall(_ptxas_report(stages["ptx"])))


def _ptxas_report(ptx: str) -> str:
    """What the assembler says of registers; triton does not keep it."""
    nvidia = import_module("triton.backends.nvidia.compiler")
    chip = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    assembler = nvidia.get_ptxas(90).path
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx, "utf-8")
        done = subprocess.run(
            [
                assembler,
                "-v",
                f"--gpu-name={chip[1] if chip else 'sm_80'}",
                str(source),
                "-o",
                str(Path(folder, "kernel.cubin")),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stderr + done.stdout
