"""The base class of every op: one name, one plain-torch meaning, implementations bound at load."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import nn

from dougong.contracts import Needs, Property
from dougong.contracts.rank_plan import NATIVE
from dougong.ops.dispatch import BoundPiece, by_tokens
from dougong.ops.marks import mark_class
from dougong.ops.overrides import OpType

_T = TypeVar("_T")


class CustomOp(nn.Module, metaclass=OpType):
    """A computation a vendor may want to own.

    ``forward_native`` says what the op means, in plain torch: portable fallback and oracle in one.
    Calling the op runs what was bound to it with no look-up between; hooks of ``nn.Module`` are not
    run. Ops are called by position, never with keywords. Where implementations differ by token
    count, the rows of the first argument are counted.

    A subclass that means something else, with a ``forward_native`` of its own, is another op and
    has a key of its own.

    Attributes:
        key: The op's stable name in the catalogue.
        property_names: What the op says of itself to conditions; by default each is an attribute.
        kernel_arg_names: Names of what `kernel_args` gives, in order.
        may_mutate: Arguments of the op that an implementation may overwrite.
        implementation: Name of what is bound; ``"native"`` until something else is. Several are
            named with the token counts they are for.
        assigned: Names of all implementations that the plan gives this op; known before the first
            one is made.
        sharers: Other modules that hold memory of this op's weights or buffers: tied ones, and a
            fused slot around it that may read them. Known before the first implementation is made.
        path: Of the op in the model; empty until it is bound.
        pieces: What is bound, by token count.
    """

    key: ClassVar[str]
    property_names: ClassVar[tuple[str, ...]] = ()
    kernel_arg_names: ClassVar[tuple[str, ...]] = ()
    may_mutate: ClassVar[tuple[str, ...]] = ()

    __slots__ = ("_bound",)
    _bound: Callable[..., Any]
    implementation: str
    assigned: tuple[str, ...]
    sharers: tuple[nn.Module, ...]
    path: str
    pieces: tuple[BoundPiece, ...]

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        self.assigned = (NATIVE,)
        self.sharers = ()
        self.bind(NATIVE, self.forward_native)

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """A small op of this class with filled weights, and arguments for a call, on the host.

        Self-tests run it; a plugin's own op is run once when it is registered.
        """
        raise TypeError(f"{cls.__qualname__} defines no example(), so nobody can try it")

    @staticmethod
    def register_oot(
        key: str, *, name: str | None = None, when: Needs | None = None
    ) -> Callable[[_T], _T]:
        """Mark a class that takes an op's place; nothing is registered before the loader reads it.

        The class derives from the op's, is made with the same arguments, and computes in
        ``forward_oot``. It is on by default once it is registered.

        Args:
            key: The op's key.
            name: Namespaced and unique; ``None``: ``"<plugin>/<class>"``.
            when: Conditions, as a kernel's; ``None``: always. Where they do not hold, the op is
                made of the core's class. Properties are asked of an op as it is made.

        Raises:
            ContractError: What is marked is no class, the name is not namespaced, or the conditions
                are none.
        """
        return mark_class(key, name, when)

    def forward_native(self, *args: Any) -> Any:
        """The op in plain torch; every op defines it."""
        raise TypeError(f"{type(self).__name__} defines no forward_native, so it is not an op")

    def forward_oot(self, *args: Any) -> Any:
        """What an out-of-tree class computes; takes what ``forward_native`` takes."""
        return self.forward_native(*args)

    def post_load(self) -> None:
        """Called once, when all weights of the model are loaded and before anything is bound.

        For an out-of-tree class or a plugin's own op that prepares its weights: packs or transposes
        them, or derives tables. By default nothing happens. What it raises is held against the
        out-of-tree class. Weights that `sharers` hold too must keep their values.
        """

    def is_alone(self, name: str) -> bool:
        """Whether implementation ``name`` is the only reader of this op's weights, ever.

        Then a prepared kernel may give their memory back once it has its own copy.
        """
        return self.assigned == (name,) and not self.sharers

    def properties(self) -> dict[str, Property]:
        """Sizes and options that conditions may ask for, by name; known before weights are."""
        return {name: getattr(self, name) for name in self.property_names}

    def kernel_args(self) -> tuple[Any, ...]:
        """What a functional kernel gets after the op's own arguments: weights, then constants."""
        return ()

    @classmethod
    def arg_names(cls) -> tuple[str, ...]:
        """Names of the op's own arguments."""
        return tuple(inspect.signature(cls.forward_native).parameters)[1:]

    @classmethod
    def num_args(cls) -> int | None:
        """How many arguments every call has; ``None``: some may be left out."""
        parameters = list(inspect.signature(cls.forward_native).parameters.values())[1:]
        is_fixed = all(
            one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
            and one.default is one.empty
            for one in parameters
        )
        return len(parameters) if is_fixed else None

    @property
    def kernel(self) -> Callable[..., Any]:
        """What a call runs; it takes the op's own arguments."""
        return self._bound

    def bind(self, name: str, implementation: Callable[..., Any]) -> None:
        """Run ``implementation`` from now on; it takes the op's own arguments."""
        self.bind_pieces((BoundPiece(name, implementation),))

    def bind_pieces(self, pieces: Iterable[BoundPiece]) -> None:
        """Run these from now on, each up to its number of tokens.

        Args:
            pieces: Ascending; the last has no bound.
        """
        self.pieces = tuple(pieces)
        self.implementation = ", then ".join(
            piece.implementation + (f" up to {piece.up_to}" if piece.up_to else "")
            for piece in self.pieces
        )
        is_one = len(self.pieces) == 1
        self._bound = by_tokens(self.pieces, None if is_one else self.num_args())

    if TYPE_CHECKING:

        def __call__(self, *args: Any) -> Any:
            """Run what is bound."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bound": self._bound}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rest = dict(state)
        self._bound = rest.pop("_bound")
        super().__setstate__(rest)  # type: ignore[no-untyped-call]  # torch's own has no types


# Python finds the bound callable here by itself, with no frame of ours in between, which would cost
# more than all the rest of a call. A compiler that traces is given `kernel` instead.
CustomOp.__call__ = CustomOp._bound  # type: ignore[method-assign]  # the slot, not a function
