"""Where a value that a candidate does not take came from, where the checkpoint is the cause."""

from __future__ import annotations

from collections.abc import Mapping

from dougong.config.decision import CHECKPOINT
from dougong.planner.inputs import PlanInputs


def origins(inputs: PlanInputs) -> Mapping[str, str]:
    """Property → where its value came from; without the dtype where that was not the checkpoint's
    choice."""
    told = dict(inputs.needs.provenance)
    authors = [one.author for one in inputs.decisions if one.field == "dtype"]
    if "dtype" in inputs.config.explicit or (authors and authors[-1] != CHECKPOINT):
        told.pop("dtype", None)
    return told
