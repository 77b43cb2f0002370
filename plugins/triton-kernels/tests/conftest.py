"""What runs without being asked for: nothing that needs triton."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the lane run with ``-m lane``."""
    if config.option.markexpr:
        return
    lane = [item for item in items if item.get_closest_marker("lane")]
    config.hook.pytest_deselected(items=lane)
    items[:] = [item for item in items if item not in lane]
