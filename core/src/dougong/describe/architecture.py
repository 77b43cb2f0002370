"""Which architecture a checkpoint is, among the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from dougong.errors import CheckpointError


def resolve_architecture(
    hf_config: Mapping[str, Any], known: Collection[str], *, reference: str
) -> str:
    """The first architecture the checkpoint names that is known.

    Args:
        hf_config: The checkpoint's configuration.
        known: Names that a model class is registered for.
        reference: As the user wrote the model, for the message.

    Raises:
        CheckpointError: None is known; the message lists the known ones and the nearest.
    """
    named = [str(name) for name in hf_config.get("architectures") or ()]
    for name in named:
        if name in known:
            return name
    if not named:
        kind = hf_config.get("model_type", "unknown")
        what = f"{reference} names no architecture (its model_type is {kind!r})"
    else:
        what = f"{reference} is a {' / '.join(named)}, which no installed model class implements"
    nearest = difflib.get_close_matches(named[0], known, n=1, cutoff=0.5) if named else []
    hint = f" The nearest is {nearest[0]}." if nearest else ""
    raise CheckpointError(
        f"{what}. Known architectures: {', '.join(sorted(known)) or 'none'}.{hint} "
        "Choose another model, or install a plugin that registers this one."
    )
