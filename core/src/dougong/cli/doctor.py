"""``dougong doctor``: every plugin with its verdict, the choice, a test of each chosen device."""

from __future__ import annotations

import json
import platform as python
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import importlib_metadata
import typer

from dougong import __version__, envs
from dougong.cli.doctor_view import print_report
from dougong.cli.exit_codes import ExitCode, exit_code
from dougong.cli.self_test import SelfTests, run_self_tests
from dougong.contracts.version import CONTRACT_VERSION
from dougong.errors import ConfigError, DougongError, PluginError
from dougong.platforms import (
    Conformance,
    LoadedPlatform,
    PluginTable,
    Selection,
    check_device_mask,
    conformance_of,
    discover,
    examine_rest,
    load_platform,
    select_platform,
)
from dougong.platforms.table import CPU

app = typer.Typer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What doctor found.

    Attributes:
        versions: Of what matters here, by name.
        table: Every plugin.
        selection: The choice that a start would make; ``None``: it would be refused.
        problems: What an operator must act on, one sentence each.
        tests: Of the chosen devices; ``None``: they were not run.
        code: How the command ends.
        conformance: Of the platform that a start would choose.
    """

    versions: dict[str, str]
    table: PluginTable
    selection: Selection | None
    problems: tuple[str, ...]
    tests: SelfTests | None
    code: ExitCode
    conformance: Conformance | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        chosen = self.selection
        return {
            "versions": self.versions,
            "plugins": self.table.to_json(),
            "selection": chosen
            and {
                "platform": chosen.platform,
                "devices": list(chosen.device_indices),
                "extensions": [row.name for row in chosen.extensions],
                "is_explicit": chosen.is_explicit,
                "reasons": list(chosen.reasons),
            },
            "tests": [asdict(result) for result in self.tests.results] if self.tests else [],
            "kernels": self.tests
            and {"loaded": list(self.tests.loaded), "missing": dict(self.tests.missing)},
            "conformance": self.conformance
            and {"sentence": self.conformance.sentence, "details": self.conformance.details},
            "problems": list(self.problems),
            "exit_code": int(self.code),
        }


@app.command(
    epilog="Exit codes: 0 nothing is wrong; 1 a test failed; 2 no platform can be chosen as "
    "asked; 3 a plugin is broken or refused, whether chosen or not."
)
def doctor(
    platform: Annotated[
        str | None, typer.Option(help="As a start would be told; else DOUGONG_PLATFORM.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="Indices or uuids between commas.", metavar="LIST")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    is_testing: Annotated[
        bool,
        typer.Option("--test/--no-test", help="Load kernels; run ops and a collective on each."),
    ] = True,
) -> None:
    """List every installed platform plugin with its verdict, reason and devices.

    Then say which platform a start would choose and why, what its import_kernels() loaded, and on
    each of its devices run ops (against float64 on the host, by the implementation that a model
    would get) and one collective (between two ranks where that is possible).
    """
    report = examine(platform, devices, is_testing=is_testing)
    if is_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        print_report(report.to_json())
    raise typer.Exit(report.code)


def examine(platform: str | None, devices: str | None, *, is_testing: bool) -> Report:
    """All that doctor tells; raises nothing that a plugin or a setting can cause."""
    errors: list[DougongError] = []
    table = _discover(errors)
    loaded, table = _load(table, platform, devices, errors)
    # The core's own platform is tried only when it failed, so that its row says so.
    failed = {error.plugin for error in errors if isinstance(error, PluginError)}
    table = examine_rest(table, skips=() if CPU in failed else (CPU,))
    tests = run_self_tests(loaded) if loaded and is_testing else None
    conformance = _conformance(loaded, errors)
    return Report(
        versions=_versions(),
        table=table,
        selection=replace(loaded.selection, table=table) if loaded else None,
        problems=tuple(_problems(table, errors, tests)),
        tests=tests,
        code=_code(table, errors, tests),
        conformance=conformance,
    )


def _discover(errors: list[DougongError]) -> PluginTable:
    """The table under DOUGONG_PLUGINS; under no allow-list when that one cannot be understood."""
    try:
        return discover(allowed=envs.plugins())
    except ConfigError as error:
        errors.append(error)
        return discover()


def _load(
    table: PluginTable, platform: str | None, devices: str | None, errors: list[DougongError]
) -> tuple[LoadedPlatform | None, PluginTable]:
    """As a start does, and its table; ``None`` where it would be refused."""
    try:
        name = platform or envs.platform()
        selection = select_platform(table, name, devices, tells_faults=False)  # the report does
        loaded = load_platform(selection)
        check_device_mask(loaded)
    except DougongError as error:
        errors.append(error)
        return None, table
    return loaded, loaded.table


def _conformance(loaded: LoadedPlatform | None, errors: list[DougongError]) -> Conformance | None:
    try:
        return conformance_of(loaded) if loaded else None
    except ConfigError as error:  # DOUGONG_CERTIFICATES is no folder
        errors.append(error)
        return None


def _problems(
    table: PluginTable, errors: list[DougongError], tests: SelfTests | None
) -> Iterator[str]:
    """Each fault once: an error that stopped the choice ends with the sentence of its plugin."""
    told = [str(error) for error in errors]
    yield from told
    for row in table.faults():
        if not any(row.entry in text for text in told):
            yield row.sentence()
    for test in tests.results if tests else ():
        if not test.has_passed:
            yield f"device {test.device_index}: {test.test} failed: {test.detail}"


def _versions() -> dict[str, str]:
    try:
        torch = importlib_metadata.version("torch")
    except importlib_metadata.PackageNotFoundError:
        torch = "not installed"
    return {
        "dougong": __version__,
        "contract": CONTRACT_VERSION,
        "python": python.python_version(),
        "torch": torch,
    }


def _code(table: PluginTable, errors: list[DougongError], tests: SelfTests | None) -> ExitCode:
    codes = [exit_code(error) for error in errors]
    if table.faults() or ExitCode.PLUGIN in codes:
        return ExitCode.PLUGIN
    if codes:
        return codes[0]
    results = tests.results if tests else ()
    return ExitCode.OK if all(test.has_passed for test in results) else ExitCode.FAILED
