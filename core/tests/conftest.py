"""What every test of the core may count on: a clean environment and fixed seeds."""

from __future__ import annotations

import os
import random

import hypothesis
import pytest

# The same examples on every machine, none of them judged by how long it takes.
hypothesis.settings.register_profile("dougong", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("dougong")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests reaches them; every run draws the same numbers."""
    for name in [name for name in os.environ if name.startswith("DOUGONG_")]:
        monkeypatch.delenv(name)
    random.seed(0)
