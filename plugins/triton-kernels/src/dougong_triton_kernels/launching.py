"""A launch as data: made without triton, run with it, or compiled ahead for a chip elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from dougong_triton_kernels.availability import require_triton


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One kernel with everything it is called with.

    Attributes:
        kernel: ``"module.function"`` below ``dougong_triton_kernels.kernels``.
        grid: Programs along three axes; a zero among them: nothing to do.
        arguments: Tensors and numbers by parameter name, in the kernel's order.
        constants: Compile-time values by parameter name.
        options: Of the compiler: ``num_warps``, ``num_stages``.
        may_spill: The table of tiles says that some registers will go to memory.
    """

    kernel: str
    grid: tuple[int, int, int]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, int]
    may_spill: bool = False


@cache
def kernel(name: str) -> Any:
    """The jitted function; imports triton.

    Raises:
        TritonMissingError: Triton is not installed.
    """
    require_triton()
    module, _, function = name.partition(".")
    return getattr(import_module(f"dougong_triton_kernels.kernels.{module}"), function)


@cache
def is_interpreted() -> bool:
    """Triton was imported with ``TRITON_INTERPRET=1``: kernels run on the host, slowly."""
    return type(kernel("language.tanh")).__name__ == "InterpretedFunction"


def run(launch: Launch) -> None:
    """Launch on the current stream of the tensors' device; returns at enqueue."""
    function = kernel(launch.kernel)
    if 0 in launch.grid:
        return
    constants = dict(launch.constants)
    if "INTERPRETED" in constants:
        constants["INTERPRETED"] = is_interpreted()
    function[launch.grid](**launch.arguments, **constants, **launch.options)
