"""What a model needs, said by its checkpoint before any weight is read."""

from __future__ import annotations

from dougong.describe.architecture import resolve_architecture, unknown_architecture
from dougong.describe.model import describe_model

__all__ = ["describe_model", "resolve_architecture", "unknown_architecture"]
