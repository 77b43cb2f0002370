"""One registry per engine: what two plugins may both bring, and what only one may."""

from __future__ import annotations

from collections.abc import Iterable

from dougong.contracts.registration import Registration, RegistrationKind
from dougong.errors import PluginError

_WHAT = {
    RegistrationKind.OP: "op",
    RegistrationKind.OP_CLASS: "class for op",
    RegistrationKind.KERNEL: "kernel",
    RegistrationKind.MODEL: "architecture",
    RegistrationKind.QUANTIZATION: "weight format",
}


def add_registrations(
    known: tuple[Registration, ...], added: Iterable[Registration], *, plugin: str
) -> tuple[Registration, ...]:
    """``known`` and ``added`` in order; the same object twice counts once.

    Args:
        known: Registered so far.
        added: What one plugin brings.
        plugin: Its entry-point name, for the error.

    Raises:
        PluginError: Two different objects have one kernel name, or one op class, architecture, op
            or format; the message names both wheels.
    """
    taken = {_identity(registration): registration for registration in known}
    result = list(known)
    for registration in added:
        first = taken.setdefault(_identity(registration), registration)
        if first is registration:
            result.append(registration)
        elif not _is_same(first, registration):
            what = _WHAT[registration.mark.kind]
            wheels = f"{first.distribution} and by {registration.distribution}"
            raise PluginError(
                f"{what} {_identity(registration)[1]!r} is claimed by {wheels}, with different "
                "objects. Uninstall one of the two, or exclude it with DOUGONG_PLUGINS.",
                plugin=plugin,
            )
    return tuple(result)


def _identity(registration: Registration) -> tuple[RegistrationKind, str]:
    """Many kernels may serve one op, so their own name counts; of all else the key does."""
    mark = registration.mark
    is_kernel = mark.kind is RegistrationKind.KERNEL
    return mark.kind, mark.name if is_kernel else mark.key


def _is_same(one: Registration, other: Registration) -> bool:
    if isinstance(one.target, str) or one.target is None:
        return (one.target, one.mark) == (other.target, other.mark)
    return one.target is other.target and one.mark == other.mark
