"""A slower path taken automatically is said, even where the start report is kept out of the log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.tiny_models import write_tiny_checkpoint


def generate(folder: Path, search_path: str, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dougong.cli.main", "generate", "Hi", "--model", str(folder)]
    environment = {**os.environ, "PATH": search_path, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(
        [*command, "--max-tokens", "2"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )


def test_without_a_compiler_plain_torch_answers_and_the_reason_is_on_the_screen(
    tmp_path: Path,
) -> None:
    folder = write_tiny_checkpoint(tmp_path / "model")
    empty = tmp_path / "empty"
    empty.mkdir()
    done = generate(folder, str(empty), tmp_path / "cache")
    assert "op and path fallback: " in done.stderr
    assert "op linear (plain torch at " in done.stderr
    assert "no C++ compiler" in done.stderr
    assert done.stderr.count("no C++ compiler") <= 2, "one sentence for the ops, one for attention"


def test_with_the_kernels_there_is_nothing_to_warn_of(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "model")
    home = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    done = generate(folder, os.environ["PATH"], Path(home))
    assert "fallback" not in done.stderr
