from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.installed_stubs import Installed


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)
