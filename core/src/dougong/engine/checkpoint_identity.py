"""What tells one checkpoint from another without reading its weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dougong.checkpoint import CheckpointFiles, WeightSummary

_DIGITS = 16  # of a digest: enough to see a change, and short enough for a message


def checkpoint_identity(
    files: CheckpointFiles, hf_config: Mapping[str, Any], weights: WeightSummary | None
) -> dict[str, str]:
    """See `ExecutionPlan.checkpoint`.

    The dtype is left out of the configuration's digest: it may come from the weight files, and a
    plan tells it by itself.

    Args:
        files: Its files.
        hf_config: From `dougong.checkpoint.read_config`.
        weights: From the headers of all weight files; ``None``: they are not here.
    """
    identity = {"source": _source(files.reference)}
    if files.revision is not None:
        identity["revision"] = files.revision
    stated = {name: value for name, value in hf_config.items() if name != "torch_dtype"}
    identity["config"] = _digest(stated)
    if weights is not None:
        shares = {
            name: (share.num_tensors, share.num_parameters, share.num_bytes)
            for name, share in weights.formats.items()
        }
        identity["tensors"] = _digest([sorted(weights.names), shares])
    return identity


def _source(reference: str) -> str:
    """A folder or file whichever way it was written; a name of a hub as it is."""
    path = Path(reference).expanduser()
    return str(path.resolve()) if path.exists() else reference


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return "sha256 " + hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
