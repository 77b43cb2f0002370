from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.null_engine import NullModels, install_null_platform


@pytest.fixture
def null_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NullModels:
    install_null_platform(tmp_path / "site", monkeypatch)
    return NullModels(tmp_path / "models")
