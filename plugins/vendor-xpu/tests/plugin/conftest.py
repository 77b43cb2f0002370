"""The library's ops under their published schemas, computed by references."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dougong_conformance.ladder.stand_in import StandIn, define

from tests.plugin.checkpoints import write_checkpoint
from tests.references import REFERENCES, golden


@pytest.fixture
def library() -> Iterator[StandIn]:
    """Counts what is called."""
    with define(golden(), REFERENCES) as made:
        yield made


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint with heads of 64 elements."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``extra`` run only where they are asked for."""
    if config.option.markexpr:
        return
    extra = [item for item in items if item.get_closest_marker("extra")]
    config.hook.pytest_deselected(items=extra)
    items[:] = [item for item in items if item not in extra]
