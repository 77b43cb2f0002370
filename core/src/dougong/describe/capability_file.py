"""The capability file: all that planning asks of a platform, so that a plan can be made elsewhere.

JSON: ``format``, ``version``, then the fields of `CapabilityFile`. ``version`` covers `Claims` and
`DeviceFacts` too: a field that one of them gets later has a default, which an older file keeps; one
that changes its meaning or goes raises ``version``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from dougong.contracts import (
    CONTRACT_VERSION,
    AttentionBackend,
    Capabilities,
    Claims,
    DeviceFacts,
    KernelReport,
    QuantizationSupport,
)
from dougong.describe.candidates import CandidateKind, OpCandidate
from dougong.describe.declared_backend import DeclaredAttention, DeclaredBackend
from dougong.describe.plain_conditions import (
    needs_from_plain,
    needs_to_plain,
    tokens_from_plain,
    tokens_to_plain,
)
from dougong.describe.plain_data import from_plain, to_plain
from dougong.errors import ConfigError

FORMAT = "dougong-capabilities"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityFile:
    """What one device of a platform can do, with everything the platform offers for it.

    Attributes:
        platform: Name of the platform.
        claims: Of the device's family.
        facts: Of the device.
        contract: Version of the contract under which the platform was asked.
        wheel: Distribution and version of the platform; empty: written by hand.
        kernels: What `Platform.import_kernels` reported; ``None``: nobody tried.
        attention: Backends by name, preferred first.
        ops: Implementations of ops, in order of registration.
        quantization: Formats the platform computes.
    """

    platform: str
    claims: Claims
    facts: DeviceFacts
    contract: str = CONTRACT_VERSION
    wheel: str = ""
    kernels: KernelReport | None = None
    attention: Mapping[str, DeclaredAttention] = field(default_factory=dict)
    ops: tuple[OpCandidate, ...] = ()
    quantization: tuple[QuantizationSupport, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """Claims and facts, as planning reads them."""
        return Capabilities(claims=self.claims, facts=self.facts)

    def attention_backends(self) -> dict[str, AttentionBackend]:
        """Every backend it speaks of, to be asked and not to be run."""
        return {
            name: DeclaredBackend(name, declared, self.claims)
            for name, declared in self.attention.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Op:
    """`OpCandidate` as the file has it."""

    key: str
    name: str
    origin: str = ""
    kind: CandidateKind = CandidateKind.KERNEL
    when: Mapping[str, Any] = field(default_factory=dict)
    tokens: Mapping[str, Any] | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
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
    ops: tuple[_Op, ...] = ()
    quantization: tuple[QuantizationSupport, ...] = ()


def capability_json(file: CapabilityFile) -> str:
    """The file's text, every field written out; ends with a newline."""
    stored = _File(
        format=FORMAT,
        version=VERSION,
        ops=tuple(_op_to_plain(op) for op in file.ops),
        **{name: getattr(file, name) for name in _SHARED},
    )
    return json.dumps(to_plain(stored), indent=2) + "\n"


_SHARED = tuple(one.name for one in fields(CapabilityFile) if one.name != "ops")


def parse_capabilities(text: str | bytes, source: str = "the capability file") -> CapabilityFile:
    """Read a file's text.

    Args:
        text: JSON.
        source: What to call it in messages.

    Raises:
        ConfigError: No such file, another version, unknown keys (all of them), a value of a wrong
            type or that cannot be; the message names the place.
    """
    try:
        plain = msgspec.json.decode(text)
    except msgspec.DecodeError as exc:
        raise ConfigError(f"{source} is not JSON: {exc}. {_HOW}") from exc
    _check_version(plain, source)
    try:
        stored = from_plain(_File, plain)
        ops = tuple(_op_from_plain(index, op) for index, op in enumerate(stored.ops))
        _check_values(stored)
    except ValueError as exc:
        raise ConfigError(f"{source} cannot be used: {exc}.") from exc
    return CapabilityFile(ops=ops, **{name: getattr(stored, name) for name in _SHARED})


def read_capability_file(path: Path) -> CapabilityFile:
    """Read one.

    Raises:
        ConfigError: It cannot be read; else as `parse_capabilities`.
    """
    try:
        text = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror or exc}. {_HOW}") from exc
    return parse_capabilities(text, str(path))


def write_capability_file(path: Path, file: CapabilityFile) -> None:
    """Write one, replacing what is there.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        path.write_text(capability_json(file), encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"{path} cannot be written: {exc.strerror or exc}.") from exc


_HOW = (
    "Make one with `dougong capabilities --save FILE` on a machine that has the device, or start "
    "from such a file of another one."
)


def _check_version(plain: Any, source: str) -> None:
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ConfigError(
            f'{source} is no capability file: it does not say "format": "{FORMAT}". {_HOW}'
        )
    if plain.get("version") != VERSION:
        raise ConfigError(
            f"{source} has version {plain.get('version')!r}; this dougong reads version {VERSION}. "
            "Make it again with this version of dougong, or use the one that made it."
        )


def _check_values(stored: _File) -> None:
    """What a type cannot say.

    Raises:
        ValueError: With the place.
    """
    for name in ("dtypes", "kv_dtypes", "kv_block_sizes"):
        if not getattr(stored.claims, name):
            raise ValueError(f"claims.{name} is empty; it names at least one")
    if stored.claims.slot_dtype not in ("int64", "int32"):
        raise ValueError(f"claims.slot_dtype is {stored.claims.slot_dtype!r}; int64 or int32")
    positive: tuple[tuple[str, int], ...] = (
        ("claims.kv_alignment_bytes", stored.claims.kv_alignment_bytes),
        ("claims.max_steps_in_flight", stored.claims.max_steps_in_flight),
        ("facts.memory_total_bytes", stored.facts.memory_total_bytes),
        *(("claims.kv_block_sizes", size) for size in stored.claims.kv_block_sizes),
        *(
            (f"attention.{name}.limits.head_size_multiple", one.limits.head_size_multiple)
            for name, one in stored.attention.items()
            if one.limits is not None
        ),
    )
    for place, value in positive:
        if value < 1:
            raise ValueError(f"{place} is {value}; it must be at least 1")


def _op_to_plain(op: OpCandidate) -> _Op:
    return _Op(
        key=op.key,
        name=op.name,
        origin=op.origin,
        kind=op.kind,
        when=needs_to_plain(op.when),
        tokens=tokens_to_plain(op.tokens),
        priority=op.priority,
    )


def _op_from_plain(index: int, op: _Op) -> OpCandidate:
    try:
        when = needs_from_plain(op.when)
    except ValueError as exc:
        raise ValueError(f"ops[{index}].when.{exc}") from exc
    try:
        tokens = tokens_from_plain(op.tokens)
    except ValueError as exc:
        raise ValueError(f"ops[{index}].{exc}") from exc
    return OpCandidate(
        key=op.key,
        name=op.name,
        origin=op.origin,
        kind=op.kind,
        when=when,
        tokens=tokens,
        priority=op.priority,
    )
