"""What a newcomer does, done: a project is written, built, installed and run, without a network.

The commands are those of ``docs/plugin_guide.md``, and what that page shows of their output is held
against what they print. Those that need the wheel share one process, since each would import torch;
`doctor` runs without its own tests, which start more. One by one and whole they run in
``tests/wheel``.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import shlex
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hatchling.build
import pytest

from dougong import LLM, SamplingParams
from tests.support.command_line import run_command
from tests.support.guide import Command, blocks, commands
from tests.support.stub_wheels import ThrowAwayEnvironment
from tests.support.tiny_models import write_tiny_checkpoint

COMMANDS = commands(blocks("plugin_guide.md"))
SHOWN = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
OVERRIDE, KERNEL = "acme/AcmeAddRMSNorm", "acme/small_linear"
WHEEL = "dougong-acme 0.1.0"
# How a start chooses; whose ops it then has follows from that.
CHOOSE = """
import json
from dougong.platforms import discover, select_platform
chosen = select_platform(discover())
print(json.dumps([chosen.platform, [row.name for row in chosen.extensions]]))
"""
# Several commands, then the project's own tests: exit code and output of each.
IN_ONE_PROCESS = """
import contextlib, io, json, sys
import pytest
from dougong.cli.main import main

def run(call, arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            code = call(arguments)
        except SystemExit as end:
            code = end.code
    return [int(code or 0), out.getvalue()]

typed, project = json.loads(sys.argv[1])
told = [run(main, arguments) for arguments in typed]
own = ["-q", "-p", "no:cacheprovider", "-k", "not the_core_loads", project]  # it starts doctor
told.append(run(pytest.main, own))
print(json.dumps(told))
"""
SHORTER = {"doctor": ["--no-test"], "generate": ["--json"]}  # the answer, and how the start went
OWN_TESTS = "pytest"


@dataclass(frozen=True)
class Newcomer:
    """Somebody with an empty folder and an environment of their own.

    Attributes:
        environment: Where the wheel is.
        model: Stands for the demo model, which would be fetched.
        printed: Command of the guide → what it printed; the project's own tests are one more.
    """

    environment: ThrowAwayEnvironment
    model: Path
    printed: dict[str, str]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    folder = tmp_path_factory.mktemp("newcomer")
    environment = ThrowAwayEnvironment.create(folder / "env")
    model = write_tiny_checkpoint(folder / "tiny")
    write, install, *others = COMMANDS
    assert (write.text, install.text) == (
        "dougong plugin new acme",
        "pip install -e dougong-acme",
    )
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_command("plugin", "new", "acme") == 0
    project = folder / "dougong-acme"
    _install(project, environment)
    typed = [_arguments(command, model) for command in others]
    run = environment.run("-c", IN_ONE_PROCESS, json.dumps([typed, str(project)]), cwd=folder)
    assert run.returncode == 0, run.stderr
    printed = {write.text: out.getvalue()}
    names = (*(command.text for command in others), OWN_TESTS)
    for name, (code, text) in zip(names, json.loads(run.stdout), strict=True):
        assert code == 0, f"{name}: {text}{run.stderr}"
        printed[name] = text
    return Newcomer(environment, model, printed)


def _install(project: Path, environment: ThrowAwayEnvironment) -> None:
    """Its wheel, laid out as an installer does: an editable installation would leave untried what
    is packed."""
    with contextlib.chdir(project):
        name = hatchling.build.build_wheel(str(project.parent))
    with zipfile.ZipFile(project.parent / name) as wheel:
        wheel.extractall(environment.site_packages)


def _arguments(command: Command, model: Path) -> list[str]:
    program, *arguments = shlex.split(command.text)
    assert program == "dougong"
    arguments = [str(model) if one == "demo" else one for one in arguments]
    return [*arguments, *SHORTER.get(arguments[0], [])]


def started(newcomer: Newcomer) -> dict[str, Any]:
    """The answer of the guide's model, and how its start went."""
    (command,) = (text for text in newcomer.printed if "generate" in text)
    found: dict[str, Any] = json.loads(newcomer.printed[command])
    return found


@pytest.fixture(scope="module")
def without_wheel(newcomer: Newcomer) -> Iterator[LLM]:
    """This process, where nobody has installed the newcomer's wheel."""
    with LLM(str(newcomer.model)) as llm:
        yield llm


def test_every_command_of_the_guide_prints_what_the_guide_shows(newcomer: Newcomer) -> None:
    checker = doctest.OutputChecker()
    shown = [command for command in COMMANDS if command.text in newcomer.printed]
    assert len(shown) == len(COMMANDS) - 1 == 4
    for command in shown:
        printed = newcomer.printed[command.text]
        assert checker.check_output(command.output, printed, SHOWN), f"{command.text}:\n{printed}"


def test_doctor_shows_the_memory_that_the_facts_state(newcomer: Newcomer) -> None:
    assert "2.0 GiB" in newcomer.printed["dougong doctor --platform acme"]


def test_explain_names_the_override_the_kernel_and_their_wheel(newcomer: Newcomer) -> None:
    printed = " ".join(newcomer.printed["dougong explain demo --platform acme"].split())
    for name in (OVERRIDE, KERNEL, f"platform: acme ({WHEEL})"):
        assert name in printed


def test_the_start_ran_the_override_and_says_which_wheel_brought_it(
    newcomer: Newcomer, without_wheel: LLM
) -> None:
    answer = started(newcomer)
    plan = answer["start"]["plan"]
    assert (answer["platform"], plan["platform_wheel"]) == ("acme", WHEEL)
    ran: dict[str, set[str]] = {}
    for op in plan["ops"]:
        pieces = op["assignment"]["pieces"]
        ran.setdefault(op["key"], set()).update(piece["implementation"] for piece in pieces)
    assert ran["fused_add_rms_norm"] == {OVERRIDE}
    assert ran["linear"] == {KERNEL, "native"}
    assert {name: plan["origins"][name] for name in (OVERRIDE, KERNEL)} == {
        OVERRIDE: WHEEL,
        KERNEL: WHEEL,
    }
    params = SamplingParams(temperature=0.0, max_tokens=len(answer["token_ids"]))
    (output,) = without_wheel.generate([answer["prompt"]], params)
    assert list(output.outputs[0].token_ids) == list(answer["token_ids"])


def test_nothing_changes_for_who_does_not_ask_for_it(
    newcomer: Newcomer, without_wheel: LLM
) -> None:
    done = newcomer.environment.run("-c", CHOOSE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["cpu", []]
    assert without_wheel.report.platform == "cpu"
    assert not [name for name in without_wheel.report.plan.origins if name.startswith("acme/")]


def test_the_projects_own_tests_pass(newcomer: Newcomer) -> None:
    assert "7 passed" in newcomer.printed[OWN_TESTS]
