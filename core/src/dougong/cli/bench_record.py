"""A measurement on disk, and the comparison of two."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dougong.errors import ConfigError

FORMAT = "dougong-bench-1"
LOWER_IS_BETTER = ("_s", "_bytes", "_fraction")
_RATES = "_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRecord:
    """One measurement with all that it depends on.

    Attributes:
        workload: `Workload.to_json`.
        platform: Name, with the device's.
        dtype: Compute dtype.
        results: Numbers by name; what a name ends with is the unit.
        memory: Bytes by name.
        versions: By name.
        decisions: Option → value.
    """

    workload: Mapping[str, Any]
    platform: str
    dtype: str
    results: Mapping[str, float]
    memory: Mapping[str, int]
    versions: Mapping[str, str]
    decisions: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"format": FORMAT, **asdict(self)}

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            ConfigError: The file cannot be written.
        """
        try:
            path.write_text(json.dumps(self.to_json(), indent=2) + "\n", "utf-8")
        except OSError as exc:
            raise ConfigError(f"--save {path} cannot be written: {exc}.") from exc


def load_record(path: Path) -> BenchRecord:
    """Read what `BenchRecord.save` wrote.

    Raises:
        ConfigError: The file cannot be read, or is another kind of file.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return BenchRecord(**content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise ConfigError(
            f"--against {path} is no result of `dougong bench --save`: {exc}. "
            "Name a file that such a run wrote."
        ) from exc


def check_comparable(workload: Mapping[str, Any], earlier: BenchRecord, path: Path) -> None:
    """Refuse to compare different work.

    Raises:
        ConfigError: Names every difference.
    """
    names = sorted({*workload, *earlier.workload})
    problems = tuple(
        f"{name}: {workload.get(name)} now, {earlier.workload.get(name)} there"
        for name in names
        if workload.get(name) != earlier.workload.get(name)
    )
    if problems:
        raise ConfigError(
            f"--against {path} measured other work, so a ratio would mean nothing. Run the same "
            "workload, or name another file:",
            problems,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number, now and earlier.

    Attributes:
        name: Its name.
        now: Now.
        earlier: Then.
        ratio: Now over then; ``None``: then it was 0.
        is_better: Whether the change is to the better; ``None``: no change, or neither.
    """

    name: str
    now: float
    earlier: float
    ratio: float | None
    is_better: bool | None


def compare(now: BenchRecord, earlier: BenchRecord) -> list[Comparison]:
    """Every number that both have, results first, then memory."""
    pairs = [
        (name, float(value), float(there[name]))
        for here, there in ((now.results, earlier.results), (now.memory, earlier.memory))
        for name, value in here.items()
        if name in there
    ]
    return [
        Comparison(name, new, old, new / old if old else None, _is_better(name, new, old))
        for name, new, old in pairs
    ]


def _is_better(name: str, now: float, earlier: float) -> bool | None:
    if now == earlier:
        return None
    if name.endswith(_RATES):
        return now > earlier
    return now < earlier if name.endswith(LOWER_IS_BETTER) else None
