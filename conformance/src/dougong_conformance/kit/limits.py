"""The numbers of ``spec/tolerances.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Law:
    """Limits of the one error law.

    Attributes:
        max_error: Largest normalised error of any element.
        bias: Largest mean signed error, in half ulps, either way.
        rms_warning: Root mean square above which the vendor is told.
    """

    max_error: float
    bias: float
    rms_warning: float


@cache
def tolerances() -> dict[str, Any]:
    """The whole file."""
    text = files("dougong_conformance.spec").joinpath("tolerances.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def law() -> Law:
    """Its limits."""
    return Law(**tolerances()["law"])
