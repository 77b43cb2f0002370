"""The capability file's own form: what stands in it, field by field."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dougong.contracts import (
    CONTRACT_VERSION,
    Claims,
    DeviceFacts,
    GraphSupport,
    KernelReport,
    QuantizationSupport,
)
from dougong.contracts.rank_plan import NATIVE
from dougong.describe.candidates import CandidateKind, OpCandidate
from dougong.describe.declared_backend import DeclaredAttention
from dougong.describe.plain_conditions import (
    needs_from_plain,
    needs_to_plain,
    tokens_from_plain,
    tokens_to_plain,
)
from dougong.describe.plain_data import UnusableData, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOp:
    """`OpCandidate` as the file has it."""

    key: str
    name: str
    origin: str = ""
    kind: CandidateKind = CandidateKind.KERNEL
    when: Mapping[str, Any] = field(default_factory=dict)
    tokens: Mapping[str, Any] | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """`CapabilityFile` as the file has it."""

    format: str
    version: int
    platform: str
    claims: Claims
    facts: DeviceFacts
    contract: str = CONTRACT_VERSION
    wheel: str = ""
    kernels: KernelReport | None = None
    attention: Mapping[str, DeclaredAttention] = field(default_factory=dict)
    ops: tuple[StoredOp, ...] = ()
    quantization: tuple[QuantizationSupport, ...] = ()
    graph: GraphSupport | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def op_to_plain(op: OpCandidate) -> StoredOp:
    """One implementation, conditions and all."""
    return StoredOp(
        key=op.key,
        name=op.name,
        origin=op.origin,
        kind=op.kind,
        when=needs_to_plain(op.when),
        tokens=tokens_to_plain(op.tokens),
        priority=op.priority,
    )


def ops_from_plain(
    ops: tuple[StoredOp, ...], properties: Mapping[str, Collection[str]] | None
) -> tuple[OpCandidate, ...]:
    """The reverse.

    Args:
        ops: As they were written.
        properties: Op of the core → names of its properties; ``None``: nobody here knows them.

    Raises:
        UnusableData: With every problem and its place.
    """
    found: list[OpCandidate] = []
    problems = list(_repeated(ops))
    for index, op in enumerate(ops):
        place = f"ops[{index}]"
        own = list(_name_problems(op, place, properties))
        known = None if properties is None else properties.get(op.key)
        try:
            found.append(_op_from_plain(op, place, known))
        except UnusableData as exc:
            own.extend(exc.problems)
        problems.extend(own)
    if problems:
        raise UnusableData(problems)
    return tuple(found)


def _repeated(ops: tuple[StoredOp, ...]) -> Iterator[str]:
    first: dict[tuple[str, str], int] = {}
    for index, op in enumerate(ops):
        before = first.setdefault((op.key, op.name), index)
        if before != index:
            yield f"ops[{index}] is {op.name!r} of {op.key!r}, as ops[{before}] is already"


def _name_problems(
    op: StoredOp, place: str, properties: Mapping[str, Collection[str]] | None
) -> Iterator[str]:
    if not op.key.strip():
        yield f"{place}.key is empty"
    elif properties is not None and op.key not in properties and "/" not in op.key:
        yield f"{place}.key is {op.key!r}, and there is no such op{nearest(op.key, properties)}"
    if not op.name.strip():
        yield f"{place}.name is empty"
    elif op.name == NATIVE:
        yield f"{place}.name is {NATIVE!r}, which every op has by itself; name it otherwise"


def _op_from_plain(op: StoredOp, place: str, known: Collection[str] | None) -> OpCandidate:
    problems: list[str] = []
    when, tokens = None, None
    try:
        when = needs_from_plain(op.when, known)
    except UnusableData as exc:
        problems.extend(f"{place}.when.{one}" for one in exc.problems)
    try:
        tokens = tokens_from_plain(op.tokens)
    except ValueError as exc:
        problems.append(f"{place}.{exc}")
    if when is None or problems:
        raise UnusableData(problems)
    return OpCandidate(
        key=op.key,
        name=op.name,
        origin=op.origin,
        kind=op.kind,
        when=when,
        tokens=tokens,
        priority=op.priority,
    )
