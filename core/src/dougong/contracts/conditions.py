"""When an implementation may be used: data that can be evaluated, printed and compared.

A condition on an op's property names the property: ``Needs(hidden_size=MultipleOf(64))``. What a
property may be called is the op's own list (`CustomOp.property_names`), checked at registration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from dougong.contracts.support import Support

Property = int | str | bool
"""What an op says of itself: a size, an option's name, or whether it has something."""


class Constraint(Protocol):
    """What a value must be. Frozen, comparable; ``str()`` reads after "takes"."""

    def accepts(self, value: Property) -> bool:
        """Whether ``value`` will do."""
        ...


@dataclass(frozen=True, slots=True)
class AtMost:
    """A number no larger than ``limit``."""

    limit: int

    def accepts(self, value: Property) -> bool:
        """Whether ``value`` will do."""
        return _is_number(value) and int(value) <= self.limit

    def __str__(self) -> str:
        return f"at most {self.limit}"


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A number no smaller than ``limit``."""

    limit: int

    def accepts(self, value: Property) -> bool:
        """Whether ``value`` will do."""
        return _is_number(value) and int(value) >= self.limit

    def __str__(self) -> str:
        return f"at least {self.limit}"


@dataclass(frozen=True, slots=True)
class Between:
    """A number from ``low`` to ``high``, both included.

    Raises:
        ValueError: ``low`` is above ``high``.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        """An empty range can only be a mistake."""
        if self.low > self.high:
            raise ValueError(f"Between({self.low}, {self.high}) holds for no number")

    def accepts(self, value: Property) -> bool:
        """Whether ``value`` will do."""
        return _is_number(value) and self.low <= int(value) <= self.high

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class MultipleOf:
    """A number that ``factor`` divides.

    Raises:
        ValueError: ``factor`` is below 1.
    """

    factor: int

    def __post_init__(self) -> None:
        """Zero divides nothing."""
        if self.factor < 1:
            raise ValueError(f"MultipleOf({self.factor}) holds for no number")

    def accepts(self, value: Property) -> bool:
        """Whether ``value`` will do."""
        return _is_number(value) and int(value) % self.factor == 0

    def __str__(self) -> str:
        return f"multiples of {self.factor}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some values.

    Raises:
        ValueError: There is none.
    """

    values: frozenset[Property]

    def __init__(self, *values: Property) -> None:
        if not values:
            raise ValueError("OneOf() holds for no value")
        object.__setattr__(self, "values", frozenset(values))

    def accepts(self, value: Property) -> bool:
        """Whether ``value`` will do; ``True`` is not the number 1."""
        return any(type(one) is type(value) and one == value for one in self.values)

    def __str__(self) -> str:
        return " or ".join(sorted(map(str, self.values)))


def _is_number(value: Property) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Unmet:
    """One part of a condition that does not hold.

    Attributes:
        subject: ``"dtype"``, ``"library"``, ``"feature"``, ``"driver"``, ``"runtime"``, ``"env"``,
            ``"limit"``, or the name of an op's property.
        reason: The sentence the operator reads: what was found, then what is taken.
    """

    subject: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BindRequest:
    """What is known of the device and of the engine when implementations are chosen.

    Attributes:
        dtype: Compute dtype, as torch names it.
        features: Of the device (`Claims.features`).
        limits: Of the device (`Claims.limits`).
        driver_version: `DeviceFacts.driver_version`; empty: unknown.
        runtime_version: `DeviceFacts.runtime_version`; empty: unknown.
        environment: Variables that conditions name and that are set, with their values.
        loaded: Kernel libraries that are usable (`KernelReport.loaded`), by name without version;
            ``None``: nobody has tried to load them yet, so that conditions on them hold for now.
        missing: Library → why it is not usable.
    """

    dtype: str
    features: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)
    driver_version: str = ""
    runtime_version: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    loaded: frozenset[str] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    def lacks(self, library: str) -> bool:
        """Whether a kernel library was tried and is not usable."""
        return self.loaded is not None and library not in self.loaded


@dataclass(frozen=True, slots=True, init=False)
class Needs:
    """All of these must hold; what is left out is not asked. An unstated fact makes it false.

    Attributes:
        dtype: Compute dtypes it takes; empty: any.
        features: Device features it needs, every one.
        library: Kernel library it calls.
        driver: Version of the driver, as in ``">=535.1"``; parts are compared as numbers.
        runtime: Version of the vendor's runtime, in the same way.
        env: Environment variable → value it must have, for what is available but off.
        limits: Device limit → what it must be, as in ``{"shared_memory_bytes": AtLeast(65536)}``.
        properties: Property of the op → what it must be; given as keyword arguments, where a plain
            value stands for ``OneOf(value)`` and a set for any of its values.

    Raises:
        ValueError: A version is malformed.
    """

    dtype: frozenset[str]
    features: frozenset[str]
    library: str | None
    driver: str
    runtime: str
    env: tuple[tuple[str, str], ...]
    limits: tuple[tuple[str, Constraint], ...]
    properties: tuple[tuple[str, Constraint], ...]

    def __init__(
        self,
        *,
        dtype: Iterable[str] = (),
        features: Iterable[str] = (),
        library: str | None = None,
        driver: str = "",
        runtime: str = "",
        env: Mapping[str, str] | None = None,
        limits: Mapping[str, Constraint] | None = None,
        **properties: Constraint | Property | Set[Property],
    ) -> None:
        for version in (driver, runtime):
            if version:
                _parse_bound(version)
        settled = {
            "dtype": frozenset((dtype,) if isinstance(dtype, str) else dtype),
            "features": frozenset((features,) if isinstance(features, str) else features),
            "library": library,
            "driver": driver,
            "runtime": runtime,
            "env": tuple(sorted((env or {}).items())),
            "limits": tuple(sorted((limits or {}).items())),
            "properties": tuple(
                (name, _as_constraint(value)) for name, value in sorted(properties.items())
            ),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    def unmet(self, request: BindRequest, properties: Mapping[str, Property]) -> tuple[Unmet, ...]:
        """Every part that does not hold; empty: the implementation may be used.

        Args:
            request: Device and engine.
            properties: Of the op in question (`CustomOp.properties`).
        """
        return (*self._device_unmet(request), *self._property_unmet(properties))

    def check(self, request: BindRequest, properties: Mapping[str, Property]) -> Support:
        """Whether it all holds, with every reason why not."""
        unmet = self.unmet(request, properties)
        return Support.no("; ".join(one.reason for one in unmet)) if unmet else Support.yes()

    def parts(self) -> Iterator[str]:
        """Each part in words, as ``explain`` prints it; none: holds always."""
        if self.dtype:
            yield f"dtype {' or '.join(sorted(self.dtype))}"
        yield from sorted(self.features)
        if self.library:
            yield f"library {self.library}"
        for what, bound in (("driver", self.driver), ("runtime", self.runtime)):
            if bound:
                yield f"{what} {bound}"
        yield from (f"{name}={value}" for name, value in self.env)
        yield from (f"{name} {constraint}" for name, constraint in (*self.limits, *self.properties))

    def __str__(self) -> str:
        return ", ".join(self.parts()) or "always"

    def _device_unmet(self, request: BindRequest) -> Iterator[Unmet]:
        if self.dtype and request.dtype not in self.dtype:
            takes = ", ".join(sorted(self.dtype))
            yield Unmet("dtype", f"dtype {request.dtype}; takes {takes}")
        if self.library is not None and request.lacks(self.library):
            why = request.missing.get(self.library, "it was not loaded")
            yield Unmet("library", f"needs {self.library}: {why}")
        if lacking := sorted(self.features - request.features):
            yield Unmet("feature", f"needs {', '.join(lacking)}, which this device does not claim")
        for what, bound, found in (
            ("driver", self.driver, request.driver_version),
            ("runtime", self.runtime, request.runtime_version),
        ):
            if bound and not version_meets(found, bound):
                yield Unmet(what, f"needs {what} {bound}, found {found or 'no version stated'}")
        for name, wanted in self.env:
            if request.environment.get(name) != wanted:
                value = request.environment.get(name)
                is_now = "not set" if value is None else f"{name}={value}"
                yield Unmet("env", f"available, off: set {name}={wanted} (now {is_now})")
        for name, constraint in self.limits:
            if name not in request.limits:
                yield Unmet("limit", f"needs {name} {constraint}; this device states none")
            elif not constraint.accepts(request.limits[name]):
                found_limit = request.limits[name]
                yield Unmet("limit", f"{name} {found_limit}; takes {constraint}")

    def _property_unmet(self, properties: Mapping[str, Property]) -> Iterator[Unmet]:
        for name, constraint in self.properties:
            if name not in properties:
                yield Unmet(name, f"needs {name} {constraint}; this op states none")
            elif not constraint.accepts(properties[name]):
                yield Unmet(name, f"{name} {properties[name]}; takes {constraint}")


def _as_constraint(value: Constraint | Property | Set[Property]) -> Constraint:
    if isinstance(value, int | str):
        return OneOf(value)
    if isinstance(value, Set):
        return OneOf(*value)
    return value


_BOUND = re.compile(r"(>=|==|<=|<|>)\s*(\d+(?:\.\d+)*)")


def _parse_bound(bound: str) -> list[tuple[str, tuple[int, ...]]]:
    parsed = []
    for part in bound.split(","):
        match = _BOUND.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"{bound!r} is no bound on a version; write it as in '>=535.1' or '>=2.0,<3'"
            )
        parsed.append((match[1], _numbers(match[2])))
    return parsed


def version_meets(version: str, bound: str) -> bool:
    """Whether a driver's or runtime's version meets a bound; an unknown one never does.

    Vendors' versions follow no common scheme, so the leading numbers are compared part by part:
    ``"6.8.0-45-generic"`` counts as 6.8.0.
    """
    match = re.match(r"\D*(\d+(?:\.\d+)*)", version)
    if match is None:
        return False
    found = _numbers(match[1])
    return all(_compare(found, operator, wanted) for operator, wanted in _parse_bound(bound))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _compare(found: tuple[int, ...], operator: str, wanted: tuple[int, ...]) -> bool:
    length = max(len(found), len(wanted))
    a, b = (one + (0,) * (length - len(one)) for one in (found, wanted))
    return {">=": a >= b, "==": a == b, "<=": a <= b, "<": a < b, ">": a > b}[operator]


TokenRange = AtMost | AtLeast | Between
"""Token counts of a step for which a kernel is meant."""


def token_bounds(tokens: TokenRange | None) -> tuple[int, int | None]:
    """Fewest and most tokens; ``None`` as the second: no bound."""
    match tokens:
        case AtMost(limit):
            return 1, limit
        case AtLeast(limit):
            return limit, None
        case Between(low, high):
            return low, high
        case None:
            return 1, None
