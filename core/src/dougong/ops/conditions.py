"""When an implementation may be used: stated as data, so that it can be evaluated and printed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from dougong.contracts import Support


@dataclass(frozen=True, slots=True, kw_only=True)
class BindRequest:
    """What is known when a model's ops are bound, once, after its weights are loaded.

    Attributes:
        dtype: Compute dtype, as torch names it.
        features: Of the device (`Claims.features`).
        loaded: Kernel libraries that are usable (`KernelReport.loaded`), by name without version.
        missing: Library → why it is not usable.
    """

    dtype: str
    features: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Needs:
    """All of these must hold; what is left out is not asked. An unstated fact makes it false.

    Attributes:
        dtype: Compute dtypes it takes; empty: any.
        features: Device features it needs, every one.
        library: Kernel library it calls.
    """

    dtype: Set[str] = frozenset()
    features: Set[str] = frozenset()
    library: str | None = None

    def __post_init__(self) -> None:
        """Keep copies that cannot change, so that a condition can be compared and hashed."""
        object.__setattr__(self, "dtype", frozenset(self.dtype))
        object.__setattr__(self, "features", frozenset(self.features))

    def check(self, request: BindRequest) -> Support:
        """Whether the condition holds, with the first reason why not."""
        if self.dtype and request.dtype not in self.dtype:
            return Support.no(f"dtype {request.dtype}; takes {', '.join(sorted(self.dtype))}")
        if self.library is not None and self.library not in request.loaded:
            why = request.missing.get(self.library, "it was not loaded")
            return Support.no(f"needs {self.library}: {why}")
        if lacking := sorted(self.features - request.features):
            return Support.no(f"needs {', '.join(lacking)}, which this device does not claim")
        return Support.yes()
