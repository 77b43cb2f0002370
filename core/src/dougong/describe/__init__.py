"""What a model needs, said by its checkpoint before any weight is read."""

from __future__ import annotations

from dougong.describe.architecture import resolve_architecture, unknown_architecture
from dougong.describe.candidates import CandidateKind, OpCandidate
from dougong.describe.capability_file import (
    CapabilityFile,
    capability_json,
    parse_capabilities,
    read_capability_file,
    write_capability_file,
)
from dougong.describe.declared_backend import DeclaredAttention, DeclaredBackend
from dougong.describe.declared_layout import DeclaredBuffer, DeclaredLayout
from dougong.describe.layout_fit import fit_layout
from dougong.describe.model import describe_model
from dougong.describe.model_needs import describe_needs
from dougong.describe.needs import AttentionNeed, ExpertsNeed, ModelNeeds, OpSite, WeightNeed
from dougong.describe.plain_data import unknown_keys

__all__ = [
    "AttentionNeed",
    "CandidateKind",
    "CapabilityFile",
    "DeclaredAttention",
    "DeclaredBackend",
    "DeclaredBuffer",
    "DeclaredLayout",
    "ExpertsNeed",
    "ModelNeeds",
    "OpCandidate",
    "OpSite",
    "WeightNeed",
    "capability_json",
    "describe_model",
    "describe_needs",
    "fit_layout",
    "parse_capabilities",
    "read_capability_file",
    "resolve_architecture",
    "unknown_architecture",
    "unknown_keys",
    "write_capability_file",
]
