"""The base class of every op: one name, one plain-torch meaning, one implementation bound at
load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import nn

NATIVE = "native"


class CustomOp(nn.Module):
    """A computation a vendor may want to own.

    ``forward_native`` says what the op means, in plain torch: portable fallback and oracle in one.
    Calling the op runs what `bind` chose, with no look-up between.

    Attributes:
        key: The op's stable name in the catalogue.
        implementation: Name of what is bound; ``"native"`` before `bind`.
    """

    key: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.implementation = NATIVE
        self._bound: Callable[..., Any] = self.forward_native

    def forward_native(self, *args: Any) -> Any:
        """The op in plain torch; every op defines it."""
        raise TypeError(f"{type(self).__name__} defines no forward_native, so it is not an op")

    def kernel_args(self) -> tuple[Any, ...]:
        """What a functional kernel gets after the op's own arguments: weights, then constants."""
        return ()

    def bind(self, name: str, implementation: Callable[..., Any]) -> None:
        """Run ``implementation`` from now on; it takes the op's own arguments."""
        self.implementation = name
        self._bound = implementation

    def __call__(self, *args: Any) -> Any:
        """Run the bound implementation. Hooks of ``nn.Module`` are not run: this is the hot
        path."""
        return self._bound(*args)
