"""From a model of modules to the list of ops it consists of, and to straight-line code that runs.

`trace` makes the lists of a model without memory, `FlatExecutable` what a rank runs of them.
"""

from __future__ import annotations

from dougong.execution.executable import Executable, FlatExecutable, FlatLists, callees
from dougong.execution.flat_model import FlatModel, Node, NodeKind, StepField, Value
from dougong.execution.tracing import NotFlatError, trace

__all__ = [
    "Executable",
    "FlatExecutable",
    "FlatLists",
    "FlatModel",
    "Node",
    "NodeKind",
    "NotFlatError",
    "StepField",
    "Value",
    "callees",
    "trace",
]
