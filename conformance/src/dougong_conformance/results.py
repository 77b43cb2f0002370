"""What a run leaves: one result per case, between a header and a footer; to JSON and back.

`RunRecord` is the whole truth of a run. Reports, comparisons and certificates are made of it and
of nothing else. Reading it needs neither torch nor a plugin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from dougong_conformance.judging import Metric
from dougong_conformance.outcomes import Outcome
from dougong_conformance.requirements import Level

FORMAT = "conformance-record/1"
RECORD_FILE = "record.json"

DOUBLE_FEATURE = "device.double"
"""Claimed by a device that stands for another one."""

REPLACED_RUNTIME_FEATURE = "device.double.replaced_runtime"
"""Claimed beside it where not even the vendor's runtime ran: another platform's took its place."""


class ProfileVerdict(StrEnum):
    """What is said of a profile as a whole."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    PROVISIONAL = "provisional"
    NOT_CLAIMED = "not_claimed"


class CoreVerdict(StrEnum):
    """What is said of all core requirements of every profile together."""

    CONFORMANT = "conformant"
    CONFORMANT_WITH_WAIVERS = "conformant_with_waivers"
    NOT_CONFORMANT = "not_conformant"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """How one case ended.

    Attributes:
        id: Of the case, ``"ops.rms_norm[bfloat16]"``.
        requirement: Id of its requirement.
        profile: Of the requirement.
        level: Of the requirement.
        dtype: The case's; empty where the check has none.
        outcome: After waivers and the rules of the verdict.
        measured: As the judge reported it, before waivers and rules.
        reason: One or a few sentences; never empty unless the case passed.
        metrics: What was measured, with limits.
        warnings: What the vendor should know, though nothing failed.
        ms: Wall time of the case; of repeated ones together.
        rank: Where it began to fail, in checks with several ranks.
        log: File with what its process printed, relative to the folder of the run.
        traceback: Of the exception that ended it, for the log.
        attempts: Outcome of every repetition; empty where it ran once.
        capability: Claim that turns the requirement on; empty: core.
        is_provisional: Reported and not counted.
        waiver: Id of the waiver that covers it, or that it violates.
        repro: Command that runs this case alone.
    """

    id: str
    requirement: str
    profile: str
    level: Level = Level.MUST
    dtype: str = ""
    outcome: Outcome
    measured: Outcome | None = None
    reason: str = ""
    metrics: tuple[Metric, ...] = ()
    warnings: tuple[str, ...] = ()
    ms: float = 0.0
    rank: int | None = None
    log: str = ""
    traceback: str = ""
    attempts: tuple[Outcome, ...] = ()
    capability: str = ""
    is_provisional: bool = False
    waiver: str = ""
    repro: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data; every field is there."""
        found = {one.name: _plain(getattr(self, one.name)) for one in fields(self)}
        found["metrics"] = [_metric_to_json(one) for one in self.metrics]
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CaseResult:
        """Inverse of `to_json`.

        Raises:
            KeyError, ValueError, TypeError: A field is missing, unknown or of another kind.
        """
        kept = dict(data)
        kept["level"] = Level(kept.get("level", "must"))
        kept["outcome"] = Outcome(kept["outcome"])
        measured = kept.get("measured")
        kept["measured"] = Outcome(measured) if measured else None
        kept["metrics"] = tuple(_metric_from_json(one) for one in kept.get("metrics", ()))
        kept["warnings"] = tuple(kept.get("warnings", ()))
        kept["attempts"] = tuple(Outcome(one) for one in kept.get("attempts", ()))
        return cls(**kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginIdentity:
    """Which wheel was judged.

    Attributes:
        name: Of the entry point.
        distribution: Name of the wheel.
        version: Of the wheel.
        record_sha256: Of the wheel's RECORD file; empty where it has none.
        tampered: Files on disk that are not those of RECORD.
        is_editable: Installed from a source folder: no certificate is given for it.
    """

    name: str
    distribution: str
    version: str
    record_sha256: str = ""
    tampered: tuple[str, ...] = ()
    is_editable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was asked for; all empty: everything.

    Attributes:
        profiles: Only these.
        expression: Words as after ``-k``.
        is_smoke: Only cases that are part of smoke.
        stage: Of smoke.
        cases: Only these ids.
    """

    profiles: tuple[str, ...] = ()
    expression: str = ""
    is_smoke: bool = False
    stage: str = ""
    cases: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Nothing was left out."""
        return self == Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What was judged, by what, where, as asked.

    Attributes:
        mode: ``"run"``, ``"certify"``, ``"smoke"`` or ``"selftest"``.
        suite_version: Of dougong-conformance.
        suite_sha256: Over the suite's files.
        spec_version: Minor of the specification.
        core_version: Of dougong.
        contract_version: Of the contract that the core offers.
        plugin: The wheel.
        claims: Fields of ``Claims`` as plain data.
        facts: The other fields of ``Facts`` as plain data.
        devices: Fields of each ``DeviceInfo``.
        versions: Of driver, runtime and libraries, by name.
        torch: Its version.
        python: Its version.
        machine: Operating system and processor, in words.
        environment: Variables that the plugin's process saw.
        pytest_plugins: Entry points of pytest that the environment holds, ``name = module``.
        patches: Attributes of core, torch or pytest that loading the plugin replaced.
        registrations: Attributes that device registration added; listed, not judged.
        tampering: Why the environment is not to be trusted; empty: it is.
        selection: What was asked for.
        waivers_file: Path as given.
        waivers_sha256: Of that file.
        seeds: By name.
        limits: Deadlines in seconds, by name.
        repeats: How often core cases of ops and attention ran.
        started: ISO 8601, UTC.
        is_double: The device says that it stands for another (feature ``device.double``).
    """

    mode: str
    suite_version: str
    suite_sha256: str
    spec_version: str
    core_version: str = ""
    contract_version: str = ""
    plugin: PluginIdentity
    claims: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[Mapping[str, Any], ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    torch: str = ""
    python: str = ""
    machine: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    pytest_plugins: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    registrations: tuple[str, ...] = ()
    tampering: tuple[str, ...] = ()
    selection: Selection = field(default_factory=Selection)
    waivers_file: str = ""
    waivers_sha256: str = ""
    seeds: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    repeats: int = 1
    started: str = ""
    is_double: bool = False

    @property
    def is_runtime_replaced(self) -> bool:
        """The double has no runtime of the vendor's either (`REPLACED_RUNTIME_FEATURE`)."""
        return REPLACED_RUNTIME_FEATURE in (self.claims.get("features") or ())

    def to_json(self) -> dict[str, Any]:
        """Plain data; every field is there."""
        found = {one.name: _plain(getattr(self, one.name)) for one in fields(self)}
        for name in ("plugin", "selection"):
            part = getattr(self, name)
            found[name] = {one.name: _plain(getattr(part, one.name)) for one in fields(part)}
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Header:
        """Inverse of `to_json`."""
        kept = dict(data)
        kept["plugin"] = PluginIdentity(**_with_tuples(kept["plugin"], ("tampered",)))
        kept["selection"] = Selection(**_with_tuples(kept["selection"], ("profiles", "cases")))
        lists = ("devices", "pytest_plugins", "patches", "registrations", "tampering")
        return cls(**_with_tuples(kept, lists))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """One profile in numbers; ``required`` ones are counted, provisional ones are not.

    Attributes:
        verdict: Of the profile.
        required: Cases that must have a result.
        outcomes: Number of required cases per outcome.
        missing: Required cases with no result.
        provisional: Cases or requirements that are reported and not counted.
        not_selected: Required cases that this run was not asked for.
    """

    verdict: ProfileVerdict
    required: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    missing: int = 0
    provisional: int = 0
    not_selected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What follows from the results; there is none where the run did not reach its end.

    Attributes:
        counts: Number of results per outcome, provisional ones included.
        required: Ids of every case that must have a result.
        missing: Those that have none.
        unknown: Ids that have a result and are no case of this run.
        duplicates: Ids that were reported more than once.
        profiles: Per profile.
        core: All core requirements together.
        waiver_problems: One sentence each.
        suite_problems: Why the suite itself cannot be trusted in this run.
        exit_code: Of the command.
        exit_reason: What stands after ``dougong-conform: exit N:``; empty with 0.
        digest: SHA-256 over every result but its times and logs, canonical JSON.
        outcomes_digest: SHA-256 over id and outcome only: the same for the same plugin.
        finished: ISO 8601, UTC.
        wall_s: Of the run.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    profiles: Mapping[str, ProfileSummary] = field(default_factory=dict)
    core: CoreVerdict = CoreVerdict.INCOMPLETE
    waiver_problems: tuple[str, ...] = ()
    suite_problems: tuple[str, ...] = ()
    exit_code: int = 3
    exit_reason: str = ""
    digest: str = ""
    outcomes_digest: str = ""
    finished: str = ""
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data; every field is there."""
        found = {one.name: _plain(getattr(self, one.name)) for one in fields(self)}
        found["profiles"] = {
            name: {one.name: _plain(getattr(part, one.name)) for one in fields(part)}
            for name, part in self.profiles.items()
        }
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Footer:
        """Inverse of `to_json`."""
        kept = dict(data)
        kept["core"] = CoreVerdict(kept["core"])
        kept["profiles"] = {
            name: ProfileSummary(**{**part, "verdict": ProfileVerdict(part["verdict"])})
            for name, part in kept.get("profiles", {}).items()
        }
        lists = (
            *("required", "missing", "unknown", "duplicates"),
            *("waiver_problems", "suite_problems"),
        )
        return cls(**_with_tuples(kept, lists))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run: header, results in the order of the report, footer."""

    header: Header
    results: tuple[CaseResult, ...]
    footer: Footer

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT,
            "header": self.header.to_json(),
            "results": [one.to_json() for one in self.results],
            "footer": self.footer.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunRecord:
        """Inverse of `to_json`.

        Raises:
            ValueError: It is no record, or one of another format.
        """
        if data.get("format") != FORMAT:
            raise ValueError(f"format is {data.get('format')!r}; this suite reads {FORMAT!r}")
        return cls(
            header=Header.from_json(data["header"]),
            results=tuple(CaseResult.from_json(one) for one in data["results"]),
            footer=Footer.from_json(data["footer"]),
        )


def write_record(record: RunRecord, folder: Path) -> Path:
    """Write ``record.json`` into a folder, which is made; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD_FILE
    text = json.dumps(record.to_json(), indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read_record(path: Path) -> RunRecord:
    """Read a record from its file or from the folder that holds it.

    Raises:
        ValueError: It is not one.
        OSError: It cannot be read.
    """
    file = path / RECORD_FILE if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return RunRecord.from_json(data)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"{file} is no record of a run: {exc}") from exc


def results_digest(results: Iterable[CaseResult]) -> str:
    """SHA-256 over the results without times, logs and tracebacks, sorted by id."""
    left_out = ("ms", "log", "traceback")
    rows = [
        {name: value for name, value in one.to_json().items() if name not in left_out}
        for one in sorted(results, key=lambda one: one.id)
    ]
    return _sha256(rows)


def outcomes_digest(results: Iterable[CaseResult]) -> str:
    """SHA-256 over ids and outcomes, sorted by id."""
    return _sha256(sorted((one.id, one.outcome.value) for one in results))


def _sha256(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _metric_to_json(one: Metric) -> dict[str, Any]:
    return {"name": one.name, "value": _number(one.value), "limit": _number(one.limit)}


def _metric_from_json(data: Mapping[str, Any]) -> Metric:
    limit = data["limit"]
    return Metric(data["name"], float(data["value"]), None if limit is None else float(limit))


def _number(value: float | None) -> float | str | None:
    """Strict JSON has no infinity and no NaN: those are text, which ``float`` reads back."""
    if value is None or abs(value) < float("inf"):
        return value
    return str(float(value))


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return _number(value)
    return value


def _with_tuples(data: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {**data, **{name: tuple(data[name]) for name in names if name in data}}
