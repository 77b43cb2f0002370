"""Kernels by op: what the decorators mark, collected into one registry per engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dougong.contracts import Mark, PluginError, Registration, RegistrationKind
from dougong.contracts.registration import add_mark
from dougong.ops.conditions import Needs

_T = TypeVar("_T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class KernelTerms:
    """What `register_kernel` was told beside the names."""

    when: Needs
    priority: int


def register_kernel(
    key: str, *, name: str, when: Needs | None = None, priority: int = 0
) -> Callable[[_T], _T]:
    """Mark one conditional implementation of an op; nothing is registered before the loader reads
    it.

    A decorated **function** is called as ``fn(*op_args, *op.kernel_args())``: the op's arguments,
    then
    its weights and constants. A decorated **class** is a prepared kernel: ``cls(op)`` is made once
    per
    op after its weights are loaded (to pack them, to keep pointers) and the object is called with
    the
    op's arguments alone. It may raise `UnsupportedError` there, and is then passed over with that
    reason.

    Args:
        key: The op's key.
        name: Namespaced and unique (``"acme/rms_norm"``).
        when: Conditions; ``None``: always.
        priority: Higher is tried first; equal ones in order of registration.
    """
    terms = KernelTerms(when or Needs(), priority)

    def mark(target: _T) -> _T:
        add_mark(target, Mark(kind=RegistrationKind.KERNEL, key=key, name=name, details=terms))
        return target

    return mark


@dataclass(frozen=True, slots=True)
class Kernel:
    """One registered implementation.

    Attributes:
        name: Namespaced.
        target: Function or prepared-kernel class.
        when: Conditions.
        priority: Higher is tried first.
        origin: Distribution, for messages.
    """

    name: str
    target: Callable[..., Any]
    when: Needs
    priority: int
    origin: str

    @property
    def is_prepared(self) -> bool:
        """Whether it is made once per op, rather than called with its weights each time."""
        return isinstance(self.target, type)


class OpRegistry:
    """Implementations an engine may choose from, by op key.

    Args:
        kernels: By key, in the order they are tried.
    """

    def __init__(self, kernels: Mapping[str, tuple[Kernel, ...]]) -> None:
        self._kernels = dict(kernels)

    @classmethod
    def from_registrations(
        cls, registrations: Iterable[Registration], known_keys: frozenset[str]
    ) -> OpRegistry:
        """Judge all registrations at once.

        Raises:
            PluginError: An unknown op key (with the known ones), or one name claimed twice (naming
                both distributions).
        """
        by_key: dict[str, list[Kernel]] = {}
        owners: dict[str, Registration] = {}
        for registration in registrations:
            mark = registration.mark
            if mark.kind is not RegistrationKind.KERNEL:
                continue
            _check_key(registration, known_keys)
            earlier = owners.setdefault(mark.name, registration)
            if earlier is not registration:
                if earlier.target is registration.target and earlier.mark.key == mark.key:
                    continue
                raise PluginError(
                    f"kernel {mark.name!r} is registered by {earlier.distribution} and by "
                    f"{registration.distribution}; names are unique: uninstall one of the two",
                    plugin=registration.plugin,
                )
            terms = mark.details
            by_key.setdefault(mark.key, []).append(
                Kernel(
                    name=mark.name,
                    target=registration.target,
                    when=terms.when,
                    priority=terms.priority,
                    origin=registration.distribution,
                )
            )
        ordered = {
            key: tuple(sorted(kernels, key=lambda kernel: -kernel.priority))
            for key, kernels in by_key.items()
        }
        return cls(ordered)

    def candidates(self, key: str) -> tuple[Kernel, ...]:
        """Kernels of one op, in the order they are tried; native is not among them."""
        return self._kernels.get(key, ())


def _check_key(registration: Registration, known_keys: frozenset[str]) -> None:
    if registration.mark.key not in known_keys:
        raise PluginError(
            f"{registration.distribution} registers kernel {registration.mark.name!r} for the op "
            f"{registration.mark.key!r}, which does not exist; known: "
            f"{', '.join(sorted(known_keys))}",
            plugin=registration.plugin,
        )
