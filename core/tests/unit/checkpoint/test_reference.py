from __future__ import annotations

from pathlib import Path

import pytest

from dougong.checkpoint import resolve_reference
from dougong.errors import CheckpointError


def test_a_misspelt_path_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "model-Q4_1.gguf").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"did you mean '.*model-Q4_1\.gguf'"):
        resolve_reference(str(tmp_path / "model-Q4_0.gguf"))


def test_a_path_into_a_missing_folder_says_which_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere does not exist either"):
        resolve_reference(str(tmp_path / "nowhere" / "model.gguf"))


def test_a_revision_of_local_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not fetched from a hub"):
        resolve_reference(str(tmp_path), revision="main")


def test_a_folder_goes_before_a_name_that_means_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "tiny.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert resolve_reference("demo").weights == (Path("demo/tiny.gguf"),)


@pytest.mark.parametrize("model", ["./nothing", "a/b/c", "/nothing", "~/nothing", "a b", ""])
def test_what_can_only_be_a_path_is_not_looked_for_on_a_hub(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"no file or folder|is empty"):
        resolve_reference(model)
