"""A model's files: where they are, what they say, and their tensors.

`resolve_reference` turns what a user typed into `CheckpointFiles`; everything else takes those.
`read_config`, `read_weight_summary`, `read_provenance` and `check_complete` read headers only;
`open_tensors` reads weights, one tensor at a time. Importing this package loads neither torch nor
any file library.
"""

from __future__ import annotations

from dougong.checkpoint.completeness import check_complete
from dougong.checkpoint.config import read_config
from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat
from dougong.checkpoint.progress import loading_progress
from dougong.checkpoint.provenance import read_provenance
from dougong.checkpoint.reference import resolve_reference
from dougong.checkpoint.tensors import TensorSource, open_tensors
from dougong.checkpoint.tied_head import has_tied_head
from dougong.checkpoint.weight_summary import (
    WeightSummary,
    find_weight_summary,
    read_weight_summary,
)

__all__ = [
    "CheckpointFiles",
    "CheckpointFormat",
    "TensorSource",
    "WeightSummary",
    "check_complete",
    "find_weight_summary",
    "has_tied_head",
    "loading_progress",
    "open_tensors",
    "read_config",
    "read_provenance",
    "read_weight_summary",
    "resolve_reference",
]
