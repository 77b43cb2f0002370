"""Puts references where the vendor's kernels would be; doubles name these functions."""

from __future__ import annotations

import importlib
from pathlib import Path

from dougong.contracts import KernelReport
from dougong_conformance.ladder import golden, stand_in

from dougong_rocm import library
from dougong_rocm.kernels_triton import TRITON
from tests.references.aiter_functions import FUNCTIONS
from tests.references.aiter_ops import OPS
from tests.references.triton_launchers import LAUNCHERS

GOLDEN = Path(__file__).parents[1] / "golden" / "amd_aiter-0.1.7.post2.dev18.schemas.json"


def aiter() -> KernelReport:
    """AITER's ops under their real schemas, and its Python functions."""
    ran = stand_in.install(golden.read_golden(GOLDEN), OPS)
    vars(library.AITER).update(FUNCTIONS)
    CALLED.append(ran)
    return KernelReport(loaded=tuple(f"{library.library_of(name)} ref" for name in library.CALLS))


def published() -> KernelReport:
    """AITER as its published release is: it cannot build its kernel for a paged cache."""
    broken = library.library_of(library.PAGED_ATTENTION)
    loaded = tuple(one for one in aiter().loaded if not one.startswith(f"{broken} "))
    return KernelReport(loaded=loaded, missing={broken: "it cannot choose what to build"})


def triton() -> KernelReport:
    """The launchers of the portable kernels: they need Triton, which is not here."""
    for name, functions in LAUNCHERS.items():
        module = importlib.import_module(f"dougong_triton_kernels.{name}")
        for function in functions:
            setattr(module, function.__name__, function)
    return KernelReport(loaded=(f"{TRITON} ref",))


CALLED: list[stand_in.StandIn] = []
"""What counted the calls, once it was installed in this process."""
