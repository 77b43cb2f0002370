"""Which ops run their own implementation of a vendor: ``--custom-ops`` and ``--op``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from dougong.contracts.rank_plan import NATIVE
from dougong.errors import ConfigError

_MODES = ("all", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSwitches:
    """What the user said of ops. An op's own sign beats the mode.

    Attributes:
        is_on: The mode: ops without a sign of their own use registered implementations.
        required: Ops with a ``+``: another implementation than native runs, or the start fails.
        off: Ops with a ``-``: native runs.
        implementations: Op → name of the implementation to run, from ``--op``.
    """

    is_on: bool = True
    required: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    implementations: Mapping[str, str] = field(default_factory=dict)


def parse_op_switches(
    custom_ops: str | None, implementations: Collection[str], known: Collection[str] | None
) -> OpSwitches:
    """Read both options.

    Grammar of ``--custom-ops``: ``all`` or ``none`` (``all`` where neither stands), ``+op`` and
    ``-op``, between commas. ``--op KEY=IMPLEMENTATION`` may be repeated.

    Args:
        custom_ops: Value of ``--custom-ops``; ``None``: not given.
        implementations: Values of ``--op``.
        known: Every op there is, plugins' own included; ``None``: names were checked before.

    Raises:
        ConfigError: Unknown ops (with the known ones), contradictions and malformed entries; all of
            them in one message.
    """
    entries = [] if custom_ops is None else [entry.strip() for entry in custom_ops.split(",")]
    signed = [entry for entry in entries if entry[:1] in ("+", "-") and entry[1:].strip()]
    required, off = (
        frozenset(entry[1:].strip() for entry in signed if entry[0] == sign) for sign in "+-"
    )
    wishes = [_split(entry) for entry in implementations]
    named = [(key, name) for key, name in wishes if key and name]
    chosen = dict(named)
    problems = [
        *_malformed(entries, signed, implementations),
        *_chosen_twice(named),
        *_contradictions(entries, required, off, chosen),
    ]
    if known is not None:
        problems += _unknown(required | off, "--custom-ops", known)
        problems += _unknown(chosen, "--op", known)
    if problems:
        raise ConfigError("The choice of op implementations cannot be read:", tuple(problems))
    return OpSwitches(
        is_on="none" not in entries, required=required, off=off, implementations=chosen
    )


def _split(entry: str) -> tuple[str, str]:
    key, _, name = entry.partition("=")
    return key.strip(), name.strip()


def _malformed(
    entries: Collection[str], signed: Collection[str], implementations: Collection[str]
) -> Iterator[str]:
    for entry in entries:
        if entry not in _MODES and entry not in signed:
            instead = f"write +{entry} or -{entry}" if entry.strip("+-") else "leave it out"
            yield (
                f"--custom-ops has {entry!r}, which is neither all, none, +op nor -op; {instead}."
            )
    for entry in implementations:
        if not all(_split(entry)):
            yield f"--op {entry!r} is malformed; write it as in --op rms_norm=native."


def _chosen_twice(named: Collection[tuple[str, str]]) -> Iterator[str]:
    first: dict[str, str] = {}
    for key, name in named:
        if first.setdefault(key, name) != name:
            yield f"--op {key}={first[key]} and --op {key}={name} contradict each other; give one."


def _contradictions(
    entries: Collection[str],
    required: frozenset[str],
    off: frozenset[str],
    chosen: Mapping[str, str],
) -> Iterator[str]:
    if all(mode in entries for mode in _MODES):
        yield "--custom-ops has both all and none; give one."
    for key in sorted(required & off):
        yield f"--custom-ops has both +{key} and -{key}; give one."
    for key, name in chosen.items():
        if key in off and name != NATIVE:
            yield f"--custom-ops -{key} and --op {key}={name} contradict each other; give one."
        if key in required and name == NATIVE:
            yield f"--custom-ops +{key} and --op {key}={NATIVE} contradict each other; give one."


def _unknown(keys: Collection[str], option: str, known: Collection[str]) -> Iterator[str]:
    if unknown := sorted(set(keys) - set(known)):
        yield (
            f"{option} names {', '.join(unknown)}, which no installed package has as an op; known: "
            f"{', '.join(sorted(known)) or 'none'}."
        )
