"""Out-of-tree classes in the place of ops, for the build of one model and no longer."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from dougong.contracts import Constraint, ImplementationError
from dougong.ops.failures import blames_implementation, reason_of

if TYPE_CHECKING:
    from dougong.ops.custom_op import CustomOp


Conditions = tuple[tuple[str, Constraint], ...]
"""Property of an op → what it must be."""


@dataclass(frozen=True, slots=True)
class _Override:
    cls: type[CustomOp]
    name: str
    conditions: Conditions


# Set for one build, in its thread or task: two engines never see each other's classes.
_overrides: ContextVar[Mapping[str, _Override]] = ContextVar(
    "dougong_op_overrides", default=MappingProxyType({})
)


@contextmanager
def overriding(
    classes: Mapping[str, type[CustomOp]],
    names: Mapping[str, str] | None = None,
    conditions: Mapping[str, Conditions] | None = None,
) -> Iterator[None]:
    """Ops constructed inside, in this thread or task, are made of these classes.

    An out-of-tree class may construct an op of its own key in its ``__init__``: that one is the
    core's. `OpRegistry.overriding` calls this with the classes that a plan names.

    Args:
        classes: Op key → a subclass of that op's class.
        names: Op key → name of the implementation; what is left out goes by the class's name.
        conditions: Op key → what properties of an op must be for the class to take its place; an op
            that differs is made of the core's. What is left out has none.

    Raises:
        ImplementationError: From a construction inside: the class's ``__init__`` raised.
    """
    names, conditions = names or {}, conditions or {}
    overrides = {
        key: _Override(
            cls,
            names.get(key, f"{cls.__module__}.{cls.__qualname__}"),
            conditions.get(key, ()),
        )
        for key, cls in classes.items()
    }
    token = _overrides.set(overrides)
    try:
        yield
    finally:
        _overrides.reset(token)


class OpType(ABCMeta):
    """The type of op classes: constructing one asks for an override first.

    It derives from ``ABCMeta`` so that a vendor's class may have abstract bases beside the op.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """Of the class's own ``__init__``, for whoever looks at it."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]  # of a class, not of an instance
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an op."""
        overrides = _overrides.get()
        override = overrides.get(getattr(cls, "key", "")) if overrides else None
        if override is None or not issubclass(override.cls, cls):
            return super().__call__(*args, **kwargs)
        if override.conditions and not _accepts(override.conditions, cls, args, kwargs):
            return super().__call__(*args, **kwargs)
        others = {key: other for key, other in overrides.items() if other is not override}
        token = _overrides.set(others)
        try:
            return type.__call__(override.cls, *args, **kwargs)
        except Exception as exc:
            if not blames_implementation(exc):
                raise
            reason = f"making it in the place of op {override.cls.key} raised {reason_of(exc)}"
            raise ImplementationError({override.name: reason}) from exc
        finally:
            _overrides.reset(token)


def _accepts(
    conditions: Conditions, cls: OpType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether the op that is asked for meets the conditions: one without memory is made and asked.

    Planning asked the same properties of the same op in an outline.
    """
    token = _overrides.set(MappingProxyType({}))
    try:
        with torch.device("meta"):
            properties = type.__call__(cls, *args, **kwargs).properties()
    finally:
        _overrides.reset(token)
    return all(
        name in properties and constraint.accepts(properties[name])
        for name, constraint in conditions
    )
