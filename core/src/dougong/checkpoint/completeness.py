"""Is every byte of a checkpoint there? Answered from headers and file sizes, no weight read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat
from dougong.checkpoint.gguf_header import read_gguf_header
from dougong.checkpoint.headers import TensorHeader
from dougong.checkpoint.safetensors_header import safetensors_tensor_headers
from dougong.errors import CheckpointError
from dougong.log import get_logger

_logger = get_logger(__name__)
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.(?:safetensors|gguf)")
_NAMES_SHOWN = 4


def check_complete(files: CheckpointFiles) -> None:
    """Refuse a checkpoint with missing, cut or contradictory files.

    Shards lying beside the model that its index does not name are ignored, with a note in the log.

    Raises:
        CheckpointError: All problems together, each naming its file and its tensors.
    """
    if files.format is CheckpointFormat.GGUF:
        problems = _gguf_problems(files)
    else:
        problems = _safetensors_problems(files)
    if problems:
        raise CheckpointError(
            f"The checkpoint {files.reference!r} is incomplete or damaged; nothing was loaded. "
            "Fetch or copy the files named below again.",
            tuple(problems),
        )


def read_index(path: Path) -> dict[str, str]:
    """Tensor name to shard file name, from a ``*.safetensors.index.json``.

    Raises:
        CheckpointError: Not such a file, or it names a shard outside its own folder.
    """
    try:
        weight_map = json.loads(path.read_text("utf-8"))["weight_map"]
        mapping = {str(name): str(shard) for name, shard in weight_map.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CheckpointError(
            f"{path} is not a usable safetensors index ({type(exc).__name__}: {exc}). "
            "Fetch or copy it again."
        ) from exc
    if outside := sorted(shard for shard in set(mapping.values()) if Path(shard).name != shard):
        raise CheckpointError(
            f"{path} names the shard {outside[0]!r}, which is not a plain file name. "
            "Shards must lie beside their index."
        )
    return mapping


def _safetensors_problems(files: CheckpointFiles) -> list[str]:
    if not files.weights and files.index is None:
        return ["no weight file is there, only the configuration"]
    problems: list[str] = []
    headers: dict[str, tuple[TensorHeader, ...]] = {}
    for path in files.weights:
        try:
            headers[path.name] = safetensors_tensor_headers(path)
        except CheckpointError as exc:
            problems.append(str(exc))
            continue
        problems += _length_problems(path, headers[path.name])
    if files.index is None:
        problems += missing_parts(files.weights)
        problems += _repeated_names(headers.values())
    else:
        problems += _index_problems(files, files.index, headers)
    return problems


def _index_problems(
    files: CheckpointFiles, index: Path, headers: dict[str, tuple[TensorHeader, ...]]
) -> list[str]:
    promised: dict[str, set[str]] = {}
    for name, shard in read_index(index).items():
        promised.setdefault(shard, set()).add(name)
    present = {path.name for path in files.weights}
    problems = []
    for shard, names in sorted(promised.items()):
        if shard not in present:
            problems.append(f"{shard}, named by {index.name}, is missing; it holds {_list(names)}")
        elif shard in headers:
            lacking = names - {header.name for header in headers[shard]}
            if lacking:
                problems.append(f"{shard} lacks {_list(lacking)}, which {index.name} says it holds")
    extra = {path.name for path in index.parent.glob("*.safetensors")} - promised.keys()
    if extra:
        _logger.info("ignored, not named by %s: %s", index.name, ", ".join(sorted(extra)))
    return problems


def _gguf_problems(files: CheckpointFiles) -> list[str]:
    problems: list[str] = []
    tensors: list[tuple[TensorHeader, ...]] = []
    promised: int | None = None
    for path in files.weights:
        try:
            header = read_gguf_header(path)
        except CheckpointError as exc:
            problems.append(str(exc))
            continue
        problems += _length_problems(path, header.tensors)
        tensors.append(header.tensors)
        promised = header.metadata.get("split.tensors.count", promised)
    problems += missing_parts(files.weights)
    problems += _repeated_names(tensors)
    found = sum(len(entries) for entries in tensors)
    if promised is not None and not problems and found != promised:
        problems.append(
            f"{files.weights[0].name} promises {promised} tensors in all its parts; "
            f"they hold {found}"
        )
    return problems


def _length_problems(path: Path, headers: Sequence[TensorHeader]) -> list[str]:
    """A file shorter than its header says, with the tensors that are lost."""
    if not headers:
        return []
    size_bytes = path.stat().st_size
    needed_bytes = max(header.end_bytes for header in headers)
    if size_bytes >= needed_bytes:
        return []
    lost = [header.stored_name for header in headers if header.end_bytes > size_bytes]
    return [
        f"{path.name} is cut short: its header needs {needed_bytes} bytes, it has {size_bytes}; "
        f"lost, wholly or in part: {_list(lost)}"
    ]


def missing_parts(paths: Iterable[Path]) -> list[str]:
    """Gaps in files that number themselves (``x-00002-of-00003``), one sentence each."""
    present: dict[tuple[str, str, str], set[int]] = {}
    for path in paths:
        if match := _PART.fullmatch(path.name):
            key = (match["stem"], match["count"], path.suffix)
            present.setdefault(key, set()).add(int(match["number"]))
    return [
        f"{stem}-{number:05d}-of-{count}{suffix} is missing"
        for (stem, count, suffix), numbers in sorted(present.items())
        for number in range(1, int(count) + 1)
        if number not in numbers
    ]


def _repeated_names(groups: Iterable[Sequence[TensorHeader]]) -> list[str]:
    owner: dict[str, Path] = {}
    problems = []
    for header in (header for group in groups for header in group):
        first = owner.setdefault(header.stored_name, header.path)
        if first != header.path:
            problems.append(f"{header.stored_name} is in both {first.name} and {header.path.name}")
    return problems


def _list(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMES_SHOWN} more" if len(ordered) > _NAMES_SHOWN else ""
    return f"{', '.join(ordered[:_NAMES_SHOWN])}{more}"
