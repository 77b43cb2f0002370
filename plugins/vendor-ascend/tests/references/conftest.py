"""References behind the vendor's schemas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dougong_conformance.ladder.stand_in import StandIn

from tests.references.refusals import only_documented
from tests.references.stand_ins import stand_ins


@pytest.fixture(scope="package")
def npu_ops() -> Iterator[StandIn]:
    """The vendor's ops under their schemas, over references."""
    with only_documented(), stand_ins() as made:
        yield made
