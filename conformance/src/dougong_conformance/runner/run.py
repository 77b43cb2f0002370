"""A run from a name to a record: who is judged, under what, with what verdict."""

from __future__ import annotations

import datetime
import os
import platform as machine
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from dougong_conformance import SPEC_VERSION, __version__
from dougong_conformance.requirements import Requirement, all_requirements
from dougong_conformance.results import (
    DOUBLE_FEATURE,
    CaseResult,
    Header,
    PluginIdentity,
    RunRecord,
    Selection,
)
from dougong_conformance.runner import tampering, wheels
from dougong_conformance.runner.environment import declared_prefixes, executor_environment
from dougong_conformance.runner.extension import extension_requirements
from dougong_conformance.runner.limits import Limits
from dougong_conformance.runner.protocol import Setup, Told
from dougong_conformance.runner.supervisor import RunOrder, Watcher, supervise
from dougong_conformance.runner.verdict import Evidence, decide
from dougong_conformance.runner.waivers import Waivers, read_waivers
from dougong_conformance.runner.wheels import InstalledPlugin

CERTIFY_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a command asks for.

    Attributes:
        plugin: Under test.
        mode: ``"run"``, ``"certify"``, ``"smoke"`` or ``"selftest"``.
        folder: For everything that is written.
        selection: Of cases.
        waivers: File of the vendor; ``None``: none.
        search_s: Seconds for further seeds.
        limits: Deadlines; others than the standard ones only in tests of the suite.
        repeats: Of core cases of ops and attention; 0: as the mode has it.
        import_path: Folder with a plugin that is not installed. For tests of the suite.
        extension: Folder with other checks. For tests of the suite.
        environment: Instead of this process's. For tests of the suite.
    """

    plugin: InstalledPlugin
    mode: str
    folder: Path
    selection: Selection = field(default_factory=Selection)
    waivers: Path | None = None
    search_s: float = 0.0
    limits: Limits = field(default_factory=Limits)
    repeats: int = 0
    import_path: str = ""
    extension: str = ""
    environment: Mapping[str, str] | None = None

    @property
    def times(self) -> int:
        """How often core cases of ops and attention run."""
        return self.repeats or (CERTIFY_REPEATS if self.mode == "certify" else 1)


def run(request: RunRequest, watcher: Watcher | None = None) -> RunRecord:
    """Judge a plugin; the record says all, and nothing is written here but events and logs.

    Raises:
        BadWaivers: The file of waivers cannot be read.
    """
    began = time.monotonic()
    started = _now()
    waivers = read_waivers(request.waivers)
    given = os.environ if request.environment is None else request.environment
    prefixes = declared_prefixes(request.plugin.distribution)
    environment = executor_environment(request.plugin.name, prefixes, given)
    identity = wheels.identify(request.plugin)
    signs = tampering.signs(request.plugin, identity, given)
    told = supervise(
        RunOrder(
            plugin=request.plugin.name,
            environment=environment,
            folder=request.folder,
            setup=_setup(request),
            import_path=request.import_path,
        ),
        watcher,
    )
    header = replace(
        _header(request, waivers, told),
        plugin=identity,
        environment=environment,
        tampering=signs,
        started=started,
    )
    results, footer = decide(_evidence(request, header, told, waivers))
    return RunRecord(
        header=header,
        results=tuple(_finished(one, request.folder, told) for one in results),
        footer=replace(footer, finished=_now(), wall_s=round(time.monotonic() - began, 2)),
    )


def look(request: RunRequest) -> tuple[Header, Told]:
    """Load the plugin and make the plan of a run, without running a check."""
    given = os.environ if request.environment is None else request.environment
    prefixes = declared_prefixes(request.plugin.distribution)
    environment = executor_environment(request.plugin.name, prefixes, given)
    identity = wheels.identify(request.plugin)
    told = supervise(
        RunOrder(
            plugin=request.plugin.name,
            environment=environment,
            folder=request.folder,
            setup=replace(_setup(request), is_dry=True),
            import_path=request.import_path,
        )
    )
    header = replace(
        _header(request, Waivers(), told),
        plugin=identity,
        environment=environment,
        tampering=tampering.signs(request.plugin, identity, given),
        started=_now(),
    )
    return header, told


def _setup(request: RunRequest) -> Setup:
    return Setup(
        mode=request.mode,
        selection=request.selection,
        limits=request.limits,
        repeats=request.times,
        extension=request.extension,
        search_s=request.search_s,
    )


def requirements_of(extension: str) -> dict[str, Requirement]:
    """Rows in force; see `in_force`."""
    rows = extension_requirements(extension) if extension else all_requirements()
    return {row.id: row for row in rows.values() if in_force(row, SPEC_VERSION)}


def in_force(row: Requirement, spec: str) -> bool:
    """Whether a minor of the specification has the requirement."""
    now = _version(spec)
    return _version(row.since) <= now and (not row.until or now <= _version(row.until))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split("."))


def _evidence(request: RunRequest, header: Header, told: Told, waivers: Waivers) -> Evidence:
    is_everything = request.selection.is_everything
    claims = header.claims
    return Evidence(
        requirements=requirements_of(request.extension),
        per_dtype=told.per_dtype,
        checks=told.checks,
        dtypes=tuple(str(one) for one in header.facts.get("dtypes", ())),
        features=claimed_names(claims),
        selected=None if is_everything or not told.plugin else _selected(request, told),
        ends=told.ends,
        has_footer=told.has_footer,
        is_certifying=request.mode == "certify",
        plugin=header.plugin,
        devices=tuple(str(one.get(name)) for one in header.devices for name in ("name", "arch")),
        today=datetime.datetime.now(datetime.UTC).date(),
        waivers=waivers.waivers,
        suite_problems=tuple(dict.fromkeys(told.problems)),
        tampering=header.tampering,
        no_plugin=str(told.no_plugin.get("reason", "")) if told.no_plugin else "",
    )


def claimed_names(claims: Mapping[str, Any]) -> frozenset[str]:
    """Features that are claimed, and the names of those fields of `Claims` that say yes."""
    fields = (name for name, value in claims.items() if value is True or _is_filled(value))
    return frozenset((*_texts(claims.get("features")), *fields))


def _is_filled(value: Any) -> bool:
    return isinstance(value, (list, tuple, Mapping)) and bool(value)


def _selected(request: RunRequest, told: Told) -> frozenset[str]:
    """Cases that the judge chose, and required ones without a check that the words fit as well."""
    from dougong_conformance.runner.selection import select

    rows = requirements_of(request.extension)
    unchecked = [id for id in rows if id not in told.checks]
    return frozenset((*told.selected, *select(unchecked, rows, request.selection)))


def _header(request: RunRequest, waivers: Waivers, told: Told) -> Header:
    facts = dict(told.plugin.get("facts", {}))
    seen = told.plugin.get("seen", {})
    claims = facts.pop("claims", {})
    devices = facts.pop("devices", ())
    return Header(
        mode=request.mode,
        suite_version=__version__,
        suite_sha256=tampering.suite_digest(),
        spec_version=SPEC_VERSION,
        core_version=_installed("dougong"),
        contract_version=str(seen.get("contract", "")),
        plugin=PluginIdentity(name="", distribution="", version=""),
        claims=claims,
        facts=facts,
        devices=tuple(devices),
        versions={str(name): str(value) for name, value in seen.get("versions", {}).items()},
        torch=str(told.hello.get("torch", "")),
        python=str(told.hello.get("python", "")),
        machine=f"{machine.system()} {machine.release()} {machine.machine()}",
        pytest_plugins=tuple(wheels.pytest_plugins()),
        patches=tuple(_texts(seen.get("replaced"))),
        registrations=tuple(_texts(seen.get("added"))),
        selection=request.selection,
        waivers_file=str(request.waivers or ""),
        waivers_sha256=waivers.sha256,
        seeds={"suite": __version__, "further seeds searched": str(told.searched)},
        limits=request.limits.to_json(),
        repeats=request.times,
        is_double=DOUBLE_FEATURE in _texts(claims.get("features")),
    )


def _finished(result: CaseResult, folder: Path, told: Told) -> CaseResult:
    """A result with its log, how to repeat it, and what further seeds found."""
    repro = f"dougong-conform repro {folder} '{result.id}'"
    found = [
        f"search: with seed {seed} it ends as {end.outcome}: {end.reason} ({repro} --seed {seed})"
        for seed, end in told.findings
        if end.id == result.id
    ]
    log = f"logs/{result.log}" if result.log else ""
    return replace(result, log=log, repro=repro, warnings=(*result.warnings, *found))


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else []


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
