from __future__ import annotations

from pathlib import Path

import pytest

from dougong.checkpoint import (
    check_complete,
    find_weight_summary,
    read_config,
    read_weight_summary,
    resolve_reference,
)
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


def test_a_config_alone_will_do_for_whoever_needs_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    files = resolve_reference(str(tmp_path), needs_weights=False)
    assert files.weights == ()
    assert find_weight_summary(files) is None
    assert read_config(files)["torch_dtype"] == "bfloat16"
    with pytest.raises(CheckpointError, match="holds no weights"):
        resolve_reference(str(tmp_path))


def test_a_config_alone_is_never_served(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    files = resolve_reference(str(tmp_path), needs_weights=False)
    with pytest.raises(CheckpointError, match="no weight file is there"):
        check_complete(files)
    with pytest.raises(CheckpointError, match="has no weights here"):
        read_weight_summary(files)


def test_a_folder_without_even_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is empty"):
        resolve_reference(str(tmp_path), needs_weights=False)
