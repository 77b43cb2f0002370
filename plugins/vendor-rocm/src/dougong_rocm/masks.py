"""Which GPUs the environment leaves, and under which numbers.

``ROCR_VISIBLE_DEVICES`` is applied first, by the lower runtime, and numbers what it leaves anew.
HIP applies its own mask to that: ``HIP_VISIBLE_DEVICES``, or under another name
``CUDA_VISIBLE_DEVICES``. Entries are numbers or uuids, in the order in which devices are to be
numbered.

The runtimes pass over in silence what they cannot use: at the first entry of no device they end the
list. A process would then run on other GPUs than were meant, so such a mask is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dougong.contracts import ConfigError, read_device_mask

from dougong_rocm.topology import Gpu

LOWER_MASK = "ROCR_VISIBLE_DEVICES"
MASK = "HIP_VISIBLE_DEVICES"
OTHER_NAMES = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_NONE = "-1"
_GROUPED_UUID = re.compile(r"(GPU-)([0-9a-f]+(?:-[0-9a-f]+)+)", re.IGNORECASE)


def apply_masks(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs this process may use, in its order.

    Raises:
        ConfigError: A mask names a GPU twice or one that is not there, or two masks disagree.
    """
    lower = _read(LOWER_MASK, environment)
    left = tuple(gpus) if lower is None else _chosen(LOWER_MASK, lower, gpus)
    name, mask = _own_mask(environment)
    if mask is None:
        return left
    if lower is not None and "gpu-" in mask.lower():
        raise ConfigError(
            f"{name}={mask} has uuids while {LOWER_MASK} is set, which torch refuses. Name uuids "
            f"in {LOWER_MASK} alone, or in {name} the numbers of what it leaves."
        )
    return _chosen(name, mask, left)


def _own_mask(environment: Mapping[str, str]) -> tuple[str, str | None]:
    """HIP's own, by whichever of its names it is set."""
    name, mask = MASK, _read(MASK, environment)
    for other in OTHER_NAMES:
        theirs = _read(other, environment)
        if theirs is None:
            continue
        if mask is None:
            name, mask = other, theirs
        elif theirs != mask:
            raise ConfigError(
                f"{name}={mask} and {other}={theirs} are two names of one mask and disagree. "
                f"Unset {other}."
            )
    return name, mask


def _read(name: str, environment: Mapping[str, str]) -> str | None:
    """As it is compared and followed: without spaces, uuids without groups."""
    value = environment.get(name)
    if value is None:
        return None
    if not value.strip():
        raise ConfigError(
            f"{name} is set to nothing, which HIP takes for every GPU and torch for none. Unset it "
            f"to use every GPU, or write {name}={_NONE} to use none."
        )
    return ",".join(_ungrouped(entry.strip()) for entry in value.split(","))


def _ungrouped(entry: str) -> str:
    """Newer tools print a uuid in groups, with dashes between."""
    found = _GROUPED_UUID.fullmatch(entry)
    return entry if found is None else found[1] + found[2].replace("-", "")


def _chosen(name: str, mask: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    if mask == _NONE:
        return ()
    indices = read_device_mask(mask, [gpu.uuid for gpu in gpus], variable=name)
    return tuple(gpus[index] for index in indices)
