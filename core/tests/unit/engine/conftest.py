from __future__ import annotations

from pathlib import Path

import pytest

from dougong.checkpoint import resolve_reference
from dougong.engine.tokenizer import Tokenizer
from tests.support.null_engine import NullModels, install_null_platform
from tests.support.tiny_models import write_tiny_checkpoint


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
    return Tokenizer.from_files(resolve_reference(str(folder)))


@pytest.fixture
def null_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NullModels:
    install_null_platform(tmp_path / "site", monkeypatch)
    return NullModels(tmp_path / "models")
