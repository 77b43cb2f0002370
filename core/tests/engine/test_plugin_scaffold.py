"""What a newcomer does, done: a project is written, built, installed and run, without a network.

The commands are those of ``docs/plugin_guide.md``, and what that page shows of their output is held
against what they print.
"""

from __future__ import annotations

import contextlib
import doctest
import functools
import json
import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hatchling.build
import pytest

from dougong import LLM, SamplingParams
from tests.support.guide import Command, blocks, commands
from tests.support.stub_wheels import ThrowAwayEnvironment
from tests.support.tiny_models import write_tiny_checkpoint

GUIDE = blocks("plugin_guide.md")
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
OWN_TESTS = "pytest"
Done = subprocess.CompletedProcess[str]


@dataclass
class Newcomer:
    """Somebody with an empty folder, an environment of their own, and several terminals.

    Attributes:
        folder: Where the commands are typed.
        environment: Where they run.
        model: Stands for the demo model, which would be fetched.
        pool: The terminals.
        typed: Command of the guide → what became of it; the project's own tests are one more.
    """

    folder: Path
    environment: ThrowAwayEnvironment
    model: Path
    pool: ThreadPoolExecutor
    typed: dict[str, Future[Done]] = field(default_factory=dict)

    def type(self, command: Command) -> None:
        """Begin one command of the guide; those before the wheel is installed end here, too."""
        program, *arguments = shlex.split(command.text)
        if program == "pip":
            assert arguments == ["install", "-e", "dougong-acme"]
            self._install()
            return
        assert program == "dougong"
        arguments = [str(self.model) if one == "demo" else one for one in arguments]
        if arguments[0] == "generate":
            arguments.append("--json")  # the answer, and how the start went
        run = functools.partial(self.environment.dougong, *arguments, cwd=self.folder)
        self.typed[command.text] = self.pool.submit(run)
        if OWN_TESTS not in self.typed:
            self.printed(command.text)

    def printed(self, command: str) -> str:
        """What a command printed, which must have ended well."""
        done = self.typed[command].result()
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _install(self) -> None:
        """Its wheel: an editable installation would leave untried what is packed."""
        project = self.folder / "dougong-acme"
        with contextlib.chdir(project):
            name = hatchling.build.build_wheel(str(self.folder))
        self.environment.install(self.folder / name)
        run = functools.partial(self.environment.run, "-m", "pytest", "-q", str(project))
        self.typed[OWN_TESTS] = self.pool.submit(run)


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    folder = tmp_path_factory.mktemp("newcomer")
    with ThreadPoolExecutor(2) as pool:
        made = Newcomer(
            folder=folder,
            environment=ThrowAwayEnvironment.create(folder / "env"),
            model=write_tiny_checkpoint(folder / "tiny"),
            pool=pool,
        )
        for command in commands(GUIDE):
            made.type(command)
        yield made


def started(newcomer: Newcomer) -> dict[str, Any]:
    """The answer of the guide's model, and how its start went."""
    (command,) = (text for text in newcomer.typed if "generate" in text)
    found: dict[str, Any] = json.loads(newcomer.printed(command))
    return found


@pytest.fixture(scope="module")
def without_wheel(newcomer: Newcomer) -> Iterator[LLM]:
    """This process, where nobody has installed the newcomer's wheel."""
    with LLM(str(newcomer.model)) as llm:
        yield llm


def test_every_command_of_the_guide_prints_what_the_guide_shows(newcomer: Newcomer) -> None:
    checker = doctest.OutputChecker()
    shown = [command for command in commands(GUIDE) if command.text in newcomer.typed]
    assert len(shown) == 4
    for command in shown:
        printed = newcomer.printed(command.text)
        assert checker.check_output(command.output, printed, SHOWN), f"{command.text}:\n{printed}"


def test_explain_names_the_override_the_kernel_and_their_wheel(newcomer: Newcomer) -> None:
    printed = " ".join(newcomer.printed("dougong explain demo --platform acme").split())
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
    assert "8 passed" in newcomer.printed(OWN_TESTS)
