"""Checkpoints that are already on this machine."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from dougong.checkpoint.completeness import read_index
from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat
from dougong.errors import CheckpointError

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SPLIT = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth")


def local_files(
    reference: str, path: Path, *, revision: str | None = None, needs_weights: bool = True
) -> CheckpointFiles:
    """Files of a folder, or of a GGUF file.

    A folder with safetensors is read as such even if GGUF files lie beside them. Which safetensors:
    those the index names; without an index ``model.safetensors``; without that, all but
    ``consolidated*`` (a second copy of the same weights in another layout).

    Args:
        reference: As the user wrote it.
        path: Folder or file.
        revision: Commit of the hub it came from.
        needs_weights: Without, a folder that has a config.json and no weight is a checkpoint too.

    Raises:
        CheckpointError: No weights there, or several models to choose from.
    """
    if path.is_file():
        return _gguf_file(reference, path, revision)
    names = {child.name for child in path.iterdir()}
    if chosen := choose_safetensors(names):
        index = path / INDEX if INDEX in names else None
        shards = sorted(set(read_index(index).values()) & names) if index else chosen
        weights = tuple(path / name for name in shards)
        return CheckpointFiles(
            reference, CheckpointFormat.SAFETENSORS, path, weights, index, revision
        )
    models = group_gguf(names)
    if len(models) == 1:
        return _gguf_file(reference, path / models[0][0], revision)
    if models:
        listed = ", ".join(sorted(model[0] for model in models))
        raise CheckpointError(f"{path} holds several GGUF models: {listed}. Name one of them.")
    if not needs_weights and CONFIG in names:
        return CheckpointFiles(reference, CheckpointFormat.SAFETENSORS, path, (), revision=revision)
    raise CheckpointError(_nothing_there(path))


def choose_safetensors(names: Collection[str]) -> list[str]:
    """The safetensors files among ``names`` that make up the model; the index counts as one."""
    if INDEX in names:
        return [INDEX]
    if SINGLE in names:
        return [SINGLE]
    return sorted(
        name
        for name in names
        if name.endswith(".safetensors") and not name.startswith(("consolidated", "adapter_"))
    )


def group_gguf(names: Iterable[str]) -> list[list[str]]:
    """GGUF files grouped into models: the parts of a split one together, in order."""
    groups: dict[str, list[str]] = {}
    for name in sorted(name for name in names if name.endswith(".gguf")):
        match = _SPLIT.fullmatch(name)
        groups.setdefault(f"{match['stem']}-of-{match['count']}" if match else name, []).append(
            name
        )
    return list(groups.values())


def suggest(path: Path) -> str:
    """A half sentence with the nearest existing name beside ``path``, or nothing."""
    parent = path.parent
    try:
        names = [child.name for child in parent.iterdir()]
    except OSError:
        return f"; {parent} does not exist either"
    nearest = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {str(parent / nearest[0])!r}" if nearest else ""


def _gguf_file(reference: str, path: Path, revision: str | None) -> CheckpointFiles:
    if path.suffix != ".gguf":
        raise CheckpointError(
            f"{path} is not a .gguf file. Name a .gguf file, or the folder that holds config.json "
            "and the safetensors."
        )
    siblings = group_gguf(child.name for child in path.parent.iterdir())
    group = next(group for group in siblings if path.name in group)
    weights = tuple(path.parent / name for name in group)
    return CheckpointFiles(
        reference, CheckpointFormat.GGUF, path.parent, weights, revision=revision
    )


def _nothing_there(path: Path) -> str:
    others = sorted(child.name for pattern in _OTHER_WEIGHTS for child in path.glob(pattern))
    if others:
        return (
            f"{path} holds weights only as pickled files ({', '.join(others[:3])}), which can run "
            "code when opened and are not read. Use the model's safetensors or GGUF files."
        )
    if not any(path.iterdir()):
        return f"{path} is empty. Name a folder with safetensors or a .gguf file."
    return (
        f"{path} holds no weights: no *.safetensors and no *.gguf. "
        "Name the folder that holds them; folders inside it are not searched."
    )
