"""Answers with a reason: `Support`, `Fault`, `KernelReport`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dougong.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Support:
    """Yes, or no with the sentence the user will read. Truthy when yes.

    Make one with `Support.yes` or `Support.no`.

    Attributes:
        is_supported: The answer.
        reason: Why not: the value that was asked, then what is taken. Empty when yes.
    """

    is_supported: bool
    reason: str = ""

    @classmethod
    def yes(cls) -> Support:
        """Supported, without reservation."""
        return cls(True)

    @classmethod
    def no(cls, reason: str) -> Support:
        """Not supported, for ``reason``.

        Raises:
            ValueError: ``reason`` is empty; a refusal without a reason helps nobody.
        """
        if not reason.strip():
            raise ValueError("Support.no needs a reason: say what was asked and what is taken")
        return cls(False, reason)

    def __bool__(self) -> bool:
        """Whether it is supported."""
        return self.is_supported


@dataclass(frozen=True, slots=True)
class Fault:
    """A vendor's exception, named in the core's terms.

    Attributes:
        kind: The `DeviceError` subclass the core raises in its place, chained to the original.
        message: One sentence, with the vendor's code where there is one.
        device_index: Index of the device within the platform, where known.
    """

    kind: type[DeviceError]
    message: str
    device_index: int | None = None


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What `Platform.import_kernels` found; read by the planner and shown to the operator.

    Attributes:
        loaded: Libraries or kernel sets that are usable now, with versions (``"acme-kernels
            2.1"``).
        missing: Library → why it is not usable. Kernels that need it are passed over with that
            reason.
    """

    loaded: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
