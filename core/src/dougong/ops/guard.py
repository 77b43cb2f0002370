"""Running a vendor's code so that an error that arrives late is laid at the right door."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

Classified = Callable[[], AbstractContextManager[None]]
"""Makes the block in which a vendor's exceptions become `DeviceError` where they are one."""


@dataclass(frozen=True, slots=True)
class Guard:
    """How a call is watched: `settle` before it, then `run` it.

    Attributes:
        synchronize: Waits for the device, and raises what went wrong there.
        classified: Put around each call.
    """

    synchronize: Callable[[], None]
    classified: Classified = nullcontext

    def settle(self) -> None:
        """Wait for what ran before; what it raises is not the next call's fault."""
        with self.classified():
            self.synchronize()

    def run(self, call: Callable[[], T]) -> T:
        """What ``call`` returns, once the device has done it; what this raises is its fault."""
        with self.classified():
            result = call()
            self.synchronize()
        return result
