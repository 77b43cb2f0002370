"""``dougong doctor``: every plugin with its verdict, the choice, a test of each chosen device."""

from __future__ import annotations

import json
import platform as python
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import importlib_metadata
import typer

from dougong import __version__, envs
from dougong.cli.doctor_view import print_report
from dougong.cli.exit_codes import ExitCode, exit_code
from dougong.cli.self_test import SelfTestResult, run_self_tests
from dougong.contracts.version import CONTRACT_VERSION
from dougong.errors import ConfigError, DougongError, PluginError
from dougong.platforms import (
    LoadedPlatform,
    PluginTable,
    Selection,
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
        tests: Results, empty when they were not run.
        code: How the command ends.
    """

    versions: dict[str, str]
    table: PluginTable
    selection: Selection | None
    problems: tuple[str, ...]
    tests: tuple[SelfTestResult, ...]
    code: ExitCode

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
            "tests": [asdict(result) for result in self.tests],
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
        bool, typer.Option("--test/--no-test", help="Run an op and a collective on each device.")
    ] = True,
) -> None:
    """List every installed platform plugin with its verdict, reason and devices.

    Then say which platform a start would choose and why, and on each of its devices run one op
    (against float64 on the host) and one collective (in a group of one rank).
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
    loaded = _load(table, platform, devices, errors)
    # The core's own platform is tried only when it failed, so that its row says so.
    failed = {error.plugin for error in errors if isinstance(error, PluginError)}
    skips = () if CPU in failed else (CPU,)
    table = examine_rest(loaded.table if loaded else table, skips=skips)
    tests = run_self_tests(loaded) if loaded and is_testing else ()
    sentences = [str(error) for error in errors]
    sentences += [
        row.sentence() for row in table.faults() if not any(row.reason in s for s in sentences)
    ]
    sentences += [
        f"device {test.device_index}: {test.test} failed: {test.detail}"
        for test in tests
        if not test.has_passed
    ]
    return Report(
        versions=_versions(),
        table=table,
        selection=replace(loaded.selection, table=table) if loaded else None,
        problems=tuple(sentences),
        tests=tests,
        code=_code(table, errors, tests),
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
) -> LoadedPlatform | None:
    try:
        return load_platform(select_platform(table, platform or envs.platform(), devices))
    except DougongError as error:
        errors.append(error)
        return None


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


def _code(
    table: PluginTable, errors: list[DougongError], tests: tuple[SelfTestResult, ...]
) -> ExitCode:
    codes = [exit_code(error) for error in errors]
    if table.faults() or ExitCode.PLUGIN in codes:
        return ExitCode.PLUGIN
    if codes:
        return codes[0]
    return ExitCode.OK if all(test.has_passed for test in tests) else ExitCode.FAILED
