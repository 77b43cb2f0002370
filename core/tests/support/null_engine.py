"""Whole engines on the null platform: an installed-looking wheel, and checkpoints with scripts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dougong.checkpoint import resolve_reference
from dougong.engine.tokenizer import Tokenizer
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

NULL_OPTIONS: dict[str, Any] = {"platform": "null", "block_size": 4, "num_kv_blocks": 1000}


def install_null_platform(
    folder: Path, monkeypatch: pytest.MonkeyPatch, descriptor: str = "plugin"
) -> None:
    """Let discovery find the null platform, here and in spawned processes, as if from a wheel.

    Args:
        folder: Where its metadata goes.
        monkeypatch: Takes it off the path again.
        descriptor: Which one of `dougong.testing.null_plugin`.
    """
    info = folder / "dougong_null-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: dougong-null\nVersion: 1.0\nRequires-Dist: dougong>=0.1\n"
    )
    entry = f"null = dougong.testing.null_plugin:{descriptor}"
    (info / "entry_points.txt").write_text(f"[dougong.platform_plugins]\n{entry}\n")
    monkeypatch.syspath_prepend(str(folder))


class NullModels:
    """Writes checkpoints whose config tells the null worker what to do.

    Args:
        folder: Where they go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        base = write_tiny_checkpoint(folder / "base")
        self.tokenizer = Tokenizer.from_files(resolve_reference(str(base)))

    def write(self, scripts: Mapping[str, Sequence[int] | str] | None = None, **orders: Any) -> str:
        """A checkpoint's folder.

        Args:
            scripts: Prompt → tokens to emit (a text stands for one token per byte); prompts must
                begin with different tokens.
            orders: See `dougong.testing.null_worker`.
        """
        if scripts is not None:
            orders["scripts"] = {
                str(self.tokenizer.encode(prompt)[0]): self.byte_ids(answer)
                for prompt, answer in scripts.items()
            }
        config = tiny_config(null=orders)
        return str(write_tiny_checkpoint(self._folder / f"model{next(self._numbers)}", config))

    def byte_ids(self, answer: Sequence[int] | str) -> list[int]:
        """One token per byte of a text; ids as they are."""
        if not isinstance(answer, str):
            return list(answer)
        return [self.byte_id(byte) for byte in answer.encode()]

    def byte_id(self, byte: int) -> int:
        """The token of one byte."""
        return next(i for i in range(256) if self.tokenizer.token_bytes(i) == bytes([byte]))
