"""What a resolved model reference is: the files of one checkpoint on the local disk."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class CheckpointFormat(enum.Enum):
    """How the weights, and with them config and tokenizer, are stored."""

    SAFETENSORS = "safetensors"
    GGUF = "gguf"


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of one checkpoint, all local. Nothing in them has been read or checked yet.

    Attributes:
        reference: What the user asked for, word for word.
        format: Which of the two families of files this is.
        folder: Where config, tokenizer and templates lie, if they are separate files.
        weights: Weight files in reading order: shards of one model, or parts of one split GGUF;
            empty where only the configuration was asked for and no weight file is here.
        index: The safetensors index that says which shard holds which tensor, where there is one.
            Shards it names may be missing from ``weights``; `check_complete` says so.
        revision: Commit of the hub the files came from; ``None`` for local files.
    """

    reference: str
    format: CheckpointFormat
    folder: Path
    weights: tuple[Path, ...]
    index: Path | None = None
    revision: str | None = None

    def companion(self, name: str) -> Path | None:
        """Path of ``name`` (such as ``tokenizer.json``) beside the weights; ``None`` if absent.

        A GGUF file describes itself: what happens to lie beside it is never used.
        """
        path = self.folder / name
        usable = self.format is CheckpointFormat.SAFETENSORS and path.is_file()
        return path if usable else None
