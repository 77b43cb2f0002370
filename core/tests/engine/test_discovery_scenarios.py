"""Stub wheels, really built and installed: what an operator sees when a plugin is wrong.

Scenarios A01 to A03, and the ways in which one wheel can spoil a start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.stub_plugins import PLATFORM, Stub
from tests.support.stub_wheels import ThrowAwayEnvironment, build_wheel
from tests.support.tiny_models import write_tiny_checkpoint

FAKE = Stub()
OTHER = Stub(distribution="otherplat", package="otherplat", name="other")
NOT_HERE = replace(FAKE, probe='return NotHere("no /dev/fake0; driver not installed")')
HOOKS_RAISE = replace(FAKE, hooks="import fakert")
SENTENCE = (
    "fakeplat 0.1 (entry point fake = fakeplat.plugin:plugin): broken: loading it raised "
    "ModuleNotFoundError: No module named 'fakert'"
)
DEADLINE_S = 15.0  # of a start that is refused
# What every start does before it looks at a model, without what a model costs.
OPEN = """
import json, sys
from dougong.cli.exit_codes import exit_code
from dougong.errors import DougongError
from dougong.platforms import open_platform
try:
    loaded = open_platform(*sys.argv[1:])
except DougongError as error:
    print(error, file=sys.stderr)
    sys.exit(exit_code(error))
print(json.dumps([loaded.platform.name, loaded.table.to_json()]))
"""


@dataclass(frozen=True, slots=True)
class Start:
    """How a start ended.

    Attributes:
        code: Exit code.
        platform: The one that runs; ``None``: none does.
        verdicts: Distribution → verdict.
        error: What was written to stderr.
    """

    code: int
    platform: str | None
    verdicts: dict[str, str]
    error: str


class Machine:
    """A throw-away environment and what its operator types.

    Args:
        folder: Empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = ThrowAwayEnvironment.create(folder / "env")
        self._num_built = 0

    def install(self, *stubs: Stub) -> None:
        """Build wheels and install them with one call of pip."""
        self.environment.install(*(self._build(stub) for stub in stubs))

    def _build(self, stub: Stub) -> Path:
        self._num_built += 1
        return build_wheel(stub, self._folder / f"wheel{self._num_built}")

    def open(self, platform: str | None = None, plugins: str | None = None) -> Start:
        """Discover, choose and load as every start does; ``plugins`` is DOUGONG_PLUGINS."""
        environment = {"DOUGONG_PLUGINS": plugins} if plugins else {}
        arguments = [platform] if platform else []
        done = self.environment.run("-c", OPEN, *arguments, env=environment)
        if done.returncode:
            return Start(done.returncode, None, {}, done.stderr)
        name, rows = json.loads(done.stdout)
        verdicts = {row["distribution"]: row["verdict"] for row in rows}
        return Start(0, name, verdicts, done.stderr)

    def generate(
        self, model: Path, *options: str, timeout_s: float | None = None
    ) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """``dougong generate``; its JSON, empty when it failed."""
        ask = ("--model", str(model), "--prompt", "the", "--max-tokens", "2", "--json")
        done = self.environment.dougong("generate", *ask, *options, timeout_s=timeout_s)
        return done, json.loads(done.stdout) if done.returncode == 0 else {}

    def doctor(self, *options: str) -> tuple[int, dict[str, Any]]:
        """``dougong doctor --json``: exit code and report."""
        done = self.environment.dougong("doctor", "--no-test", "--json", *options)
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(scope="module")
def machine_with_fault(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.install(HOOKS_RAISE)
    return machine


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


def test_a01_a_failed_registration_is_the_last_line_of_every_start_that_needs_it(
    machine_with_fault: Machine, tiny: Path
) -> None:
    automatic, _ = machine_with_fault.generate(tiny, timeout_s=DEADLINE_S)
    fake = ("--platform", "fake")
    explicit, _ = machine_with_fault.generate(tiny, *fake, timeout_s=DEADLINE_S)
    for done in (automatic, explicit):
        assert done.returncode == 3
        assert done.stderr.strip().splitlines()[-1] == SENTENCE
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    for way in ("Mend it", "pip uninstall fakeplat", "--platform cpu"):
        assert way in automatic.stderr


def test_a01_cpu_named_serves_and_the_status_shows_the_failed_plugin(
    machine_with_fault: Machine, tiny: Path
) -> None:
    done, status = machine_with_fault.generate(tiny, "--platform", "cpu")
    assert done.returncode == 0, done.stderr
    start = status.get("start", status)
    assert start["platform"] == "cpu"
    assert SENTENCE in start["plugins"]


def test_a01_a_plugin_that_is_not_here_stops_nobody_and_the_reason_is_said(
    machine: Machine, tiny: Path
) -> None:
    machine.install(NOT_HERE)
    done, status = machine.generate(tiny)
    assert done.returncode == 0, done.stderr
    start = status.get("start", status)
    assert start["platform"] == "cpu"
    assert "no /dev/fake0; driver not installed" in done.stderr


def test_a01_without_the_fault_the_fake_platform_serves(machine: Machine, tiny: Path) -> None:
    """The guard: what was refused above was refused for the fault alone."""
    machine.install(FAKE)
    done, status = machine.generate(tiny)
    assert done.returncode == 0, done.stderr
    start = status.get("start", status)
    assert start["platform"] == "fake"
    assert machine.open("fake").platform == "fake"


def test_a02_two_platforms_are_one_decision(machine: Machine) -> None:
    machine.install(FAKE, OTHER)
    refused = machine.open()
    assert refused.code == 2
    for part in ("fakeplat 0.1", "otherplat 0.1", "--platform fake or --platform other"):
        assert part in refused.error
    for name in ("fake", "other"):
        assert machine.open(name).platform == name
    machine.environment.uninstall("otherplat")
    assert machine.open().platform == "fake"


@pytest.mark.parametrize("is_src_layout", [False, True], ids=["flat", "src"])
def test_a03_one_plugin_on_two_paths_is_one_plugin(
    machine: Machine, tmp_path: Path, is_src_layout: bool
) -> None:
    stub = replace(FAKE, is_src_layout=is_src_layout)
    project = stub.write_project(tmp_path / "project", "setuptools")
    source = project / "src" if is_src_layout else project
    # What a build leaves in the source folder, and what makes the distribution visible there.
    ask = "import setuptools.build_meta as build; build.get_requires_for_build_editable()"
    subprocess.run([sys.executable, "-c", ask], cwd=project, check=True, capture_output=True)
    machine.environment.install_editable(project)
    counter = tmp_path / "counter"
    environment = {"PYTHONPATH": str(source), "STUB_COUNTER": str(counter)}
    done = machine.environment.dougong(
        "--debug", "doctor", "--no-test", "--json", env=environment, cwd=source
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["selection"]["platform"] == "fake"
    rows = [row for row in report["plugins"] if row["name"] == "fake"]
    assert [row["verdict"] for row in rows] == ["chosen", "shadowed"]
    assert rows[0]["path"] == str(source / "fakeplat.egg-info")
    assert f"{rows[0]['path']} counts, {rows[1]['path']} is shadowed by it" in done.stderr
    counts = Counter(counter.read_text().splitlines())
    assert len({line.split()[0] for line in counts}) == 1, "one process did all of it"
    assert set(counts.values()) == {1}
    assert {line.partition(" ")[2] for line in counts} >= {"probe", "hooks imported"}


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "contract": (
        {"requires_contract": ">=2.0,<3"},
        "refused",
        "contractplat 0.1 was written for contract >=2.0,<3 and dougong 0.",
    ),
    "core": (
        {"requires_dist": ("dougong>=9",)},
        "refused",
        "coreplat 0.1 was built for dougong>=9 and this is dougong 0.",
    ),
    "method": (
        {"platform_body": PLATFORM.replace("def claims(", "def clams(")},
        "refused",
        "required method claims(arch",
    ),
    "leaves": (
        {"plugin_head": "import sys; sys.exit(0)"},
        "broken",
        "its import raised SystemExit: 0",
    ),
}


def _at_fault(name: str) -> Stub:
    stub = Stub(distribution=f"{name}plat", package=f"{name}plat", name=name)
    return replace(stub, **FAULTS[name][0])


@pytest.fixture(scope="module")
def machine_with_faults(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """All of them, and a sound one, in one environment; the allow-list shows one at a time."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.install(*map(_at_fault, FAULTS), OTHER)
    return machine


@pytest.mark.parametrize("name", FAULTS)
def test_a_wheel_at_fault_stops_an_automatic_start_and_no_other(
    machine_with_faults: Machine, name: str
) -> None:
    _, verdict, told = FAULTS[name]
    automatic = machine_with_faults.open(plugins=name)
    assert automatic.code == 3
    last = automatic.error.strip().splitlines()[-1]
    assert last.startswith(f"{name}plat 0.1 (entry point {name} = {name}plat.plugin:plugin): ")
    assert f": {verdict}: " in last
    assert told in last
    explicit = machine_with_faults.open("other", plugins=f"{name},other")
    assert explicit.platform == "other"
    assert explicit.verdicts[f"{name}plat"] == verdict


def test_all_wheels_at_fault_are_told_together(machine_with_faults: Machine) -> None:
    code, report = machine_with_faults.doctor("--platform", "other")
    assert code == 3
    assert report["selection"]["platform"] == "other"
    verdicts = {row["name"]: row["verdict"] for row in report["plugins"]}
    expected = {name: verdict for name, (_, verdict, _) in FAULTS.items()}
    assert verdicts == {"cpu": "available", "other": "chosen", **expected}
    assert len(report["problems"]) == len(FAULTS)


def test_two_wheels_with_one_name_are_both_refused(machine: Machine) -> None:
    rival = Stub(distribution="rivalplat", package="rivalplat")
    machine.install(FAKE, rival, OTHER)
    for platform in (None, "fake"):
        refused = machine.open(platform)
        assert refused.code == 3
        assert "claimed by fakeplat 0.1 and by rivalplat 0.1; uninstall one" in refused.error
    verdicts = machine.open("other").verdicts
    assert (verdicts["fakeplat"], verdicts["rivalplat"]) == ("refused", "refused")
