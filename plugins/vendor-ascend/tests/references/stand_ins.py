"""Registers the references under the vendor's published schemas, where torch_npu is not here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from dougong.contracts import KernelReport
from dougong_conformance.ladder.golden import Golden, read_golden
from dougong_conformance.ladder.stand_in import StandIn, define
from dougong_conformance.ladder.stand_in import install as install_for_ever

from tests.references import REFERENCES
from tests.references.refusals import extend_dtypes

_made: list[StandIn] = []
_FILE = Path(__file__).parent.parent / "golden" / "torch_npu-2.13.0.schemas.json"


def golden() -> Golden:
    """What the published wheel registers."""
    return read_golden(_FILE)


@contextmanager
def stand_ins(fakes: Mapping[str, Callable[..., Any]] | None = None) -> Iterator[StandIn]:
    """The ops that the plugin calls, on every device, for the time of the block.

    Args:
        fakes: For fake tensors; an op without one runs its reference on them.
    """
    if _made:  # an engine's double was here, and torch takes a schema once
        yield made()
        return
    with define(golden(), REFERENCES, fakes=fakes) as stand_in:
        yield stand_in


def install_910b() -> KernelReport:
    """For a double of an A2 or A3, for as long as its process lives."""
    return _install("torch-npu", "torch-npu-fused-infer")


def install_310p() -> KernelReport:
    """For a double of a 310P, likewise."""
    return _install("torch-npu", "atb-paged-nz")


def install_910b_float32() -> KernelReport:
    """As `install_910b`, with references that take float32 where the vendor's op does not."""
    extend_to_float32()
    return install_910b()


def extend_to_float32() -> None:
    """References take float32 too, in this process."""
    extend_dtypes(torch.float32)


def made() -> StandIn:
    """What an installed double registered in this process, once it has."""
    (one,) = _made
    return one


def _install(*libraries: str) -> KernelReport:
    if not _made:
        _made.append(install_for_ever(golden(), REFERENCES))
    return KernelReport(loaded=tuple(f"{name} 2.13.0" for name in libraries))
