"""AITER's ops under their real schemas, and its functions, by references."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dougong_conformance.ladder import golden, stand_in

from dougong_rocm import library
from tests.references.aiter_functions import FUNCTIONS
from tests.references.aiter_ops import OPS
from tests.references.install import GOLDEN


@pytest.fixture
def aiter(monkeypatch: pytest.MonkeyPatch) -> Iterator[stand_in.StandIn]:
    for name, function in FUNCTIONS.items():
        monkeypatch.setattr(library.AITER, name, function, raising=False)
    with stand_in.define(golden.read_golden(GOLDEN), OPS) as made:
        yield made
