"""Which architecture a checkpoint is, among the known ones; or what to say when it is none."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
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
    raise unknown_architecture(
        named, known, reference=reference, model_type=str(hf_config.get("model_type", ""))
    )


def unknown_architecture(
    named: Sequence[str], known: Collection[str], *, reference: str, model_type: str = ""
) -> CheckpointError:
    """The error of a checkpoint that no known model class fits.

    Args:
        named: Architectures the checkpoint names; may be empty.
        known: Names that a model class is registered for.
        reference: The model, for the message.
        model_type: Of the checkpoint; stands for a name where there is none.
    """
    if named:
        what = f"{reference} is a {' / '.join(named)}, which no installed model class implements"
    else:
        what = f"{reference} names no architecture (its model_type is {model_type or 'unknown'!r})"
    asked = named[0] if named else model_type
    by_case = {name.casefold(): name for name in known}
    nearest = difflib.get_close_matches(asked.casefold(), by_case, n=1, cutoff=0.0) if asked else []
    hint = f" The nearest is {by_case[nearest[0]]}." if nearest else ""
    return CheckpointError(
        f"{what}. Known architectures: {', '.join(sorted(known)) or 'none'}.{hint} "
        "Choose another model, or install a plugin that registers this one."
    )
