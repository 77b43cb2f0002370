"""What every test of this wheel may count on: no setting of whoever runs them reaches them."""

from __future__ import annotations

import os

import pytest

for _name in [name for name in os.environ if name.startswith(("SIM_", "DOUGONG_"))]:
    del os.environ[_name]


def pytest_configure(config: pytest.Config) -> None:
    """Tests that nox runs in a session of their own."""
    config.addinivalue_line("markers", "extra: takes long; `pytest -m extra` runs it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``extra`` run only where they are asked for."""
    if config.option.markexpr:
        return
    extra = [item for item in items if item.get_closest_marker("extra")]
    config.hook.pytest_deselected(items=extra)
    items[:] = [item for item in items if item not in extra]
