"""The capability file: all that planning asks of a platform, so that a plan can be made elsewhere.

JSON: ``format``, ``version``, then the fields of `CapabilityFile`. ``version`` covers `Claims` and
`DeviceFacts` too: a field that one of them gets later has a default, which an older file keeps; one
that changes its meaning or goes raises ``version``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
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
    GraphSupport,
    KernelReport,
    QuantizationSupport,
)
from dougong.describe.candidates import OpCandidate
from dougong.describe.capability_checks import MOST_NESTED, is_too_deep, value_problems
from dougong.describe.capability_form import StoredFile, op_to_plain, ops_from_plain
from dougong.describe.declared_backend import DeclaredAttention, DeclaredBackend
from dougong.describe.plain_data import UnusableData, read_plain, to_plain
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
        graph: What its graph runner captures; ``None``: it has none.
        environment: Variables that conditions of ops name, with their values where the platform was
            asked; ``None``: not set there.
        assumed: What stands here without anybody having asked a device, one sentence each; empty:
            a device was asked.
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
    graph: GraphSupport | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """Claims and facts, as planning reads them."""
        return Capabilities(claims=self.claims, facts=self.facts)

    @property
    def set_environment(self) -> dict[str, str]:
        """Those variables that were set."""
        return {name: value for name, value in self.environment.items() if value is not None}

    def attention_backends(self) -> dict[str, AttentionBackend]:
        """Every backend it speaks of, to be asked and not to be run."""
        return {
            name: DeclaredBackend(name, declared, self.claims)
            for name, declared in self.attention.items()
        }


def capability_json(file: CapabilityFile) -> str:
    """The file's text, every field written out; ends with a newline."""
    stored = StoredFile(
        format=FORMAT,
        version=VERSION,
        ops=tuple(op_to_plain(op) for op in file.ops),
        **{name: getattr(file, name) for name in _SHARED},
    )
    return json.dumps(to_plain(stored), indent=2) + "\n"


_SHARED = tuple(one.name for one in fields(CapabilityFile) if one.name != "ops")


def parse_capabilities(
    text: str | bytes,
    source: str = "the capability file",
    op_properties: Mapping[str, Collection[str]] | None = None,
) -> CapabilityFile:
    """Read a file's text.

    Args:
        text: JSON.
        source: What to call it in messages.
        op_properties: Op of the core → names of its properties, so that misspelt ones are seen;
            ``None``: they are not looked at.

    Raises:
        ConfigError: No such file, another version or contract; or unknown keys and values that are
            of a wrong type or cannot be: all of them, each with its place.
    """
    plain = _decoded(text, source)
    _check_version(plain, source)
    stored, told = read_plain(StoredFile, plain)
    problems, ops = list(told), tuple[OpCandidate, ...]()
    if stored is not None:
        problems.extend(value_problems(stored))
        try:
            ops = ops_from_plain(stored.ops, op_properties)
        except UnusableData as exc:
            problems.extend(exc.problems)
    if stored is None or problems:
        raise ConfigError(f"{source} cannot be used:", tuple(problems))
    return CapabilityFile(ops=ops, **{name: getattr(stored, name) for name in _SHARED})


def read_capability_file(
    path: Path, op_properties: Mapping[str, Collection[str]] | None = None
) -> CapabilityFile:
    """Read one.

    Args:
        path: Of the file.
        op_properties: As for `parse_capabilities`.

    Raises:
        ConfigError: It cannot be read; else as `parse_capabilities`.
    """
    try:
        text = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror or exc}. {_HOW}") from exc
    return parse_capabilities(text, str(path), op_properties)


def write_capability_file(path: Path, file: CapabilityFile) -> None:
    """Write one, never over another file.

    Raises:
        ConfigError: There is one, or it cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(capability_json(file))
    except OSError as exc:
        raise ConfigError(f"{path} cannot be written: {exc.strerror or exc}.") from exc


_HOW = (
    "Make one with `dougong capabilities --save FILE` on a machine that has the device, or start "
    "from such a file of another one."
)


def _decoded(text: str | bytes, source: str) -> Any:
    try:
        plain = msgspec.json.decode(text)
        is_nested = is_too_deep(plain)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise ConfigError(f"{source} is not JSON: {exc}. {_HOW}") from exc
    except RecursionError:
        is_nested = True
    if is_nested:
        raise ConfigError(
            f"{source} is no capability file: it nests more than {MOST_NESTED} levels. {_HOW}"
        )
    return plain


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
