from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dougong.config import EngineArgs
from dougong.engine import planning
from dougong.errors import ConfigError
from dougong.planner import ExecutionPlan
from dougong.planner.record import plan_from_json
from tests.support.command_line import run_command
from tests.support.made_up_plans import chip_plan, plain_plan

Asked = list[tuple[EngineArgs, Path | None]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What planning was asked; it answers with made-up plans."""
    calls: Asked = []

    def explain(args: EngineArgs, capability_path: Path | None) -> ExecutionPlan:
        calls.append((args, capability_path))
        if args.platform == "nobody":
            raise ConfigError("The configuration cannot work:", ("no platform nobody.", "no luck."))
        return chip_plan() if args.platform == "acme" or capability_path else plain_plan()

    monkeypatch.setattr(planning, "explain", explain)
    monkeypatch.delenv("COLUMNS", raising=False)
    return calls


def test_the_model_is_the_demo_unless_one_is_named(asked: Asked) -> None:
    for words in (["explain"], ["explain", "here"], ["explain", "--model", "there"]):
        assert run_command(*words) == 0
    assert [args.model for args, _ in asked] == ["demo", "here", "there"]
    assert run_command("explain", "same", "--model", "same") == 0


@pytest.mark.parametrize("option", ["there", "demo"])
def test_two_models_are_refused(
    asked: Asked, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("explain", "here", "--model", option) == 2
    assert f"Two models were given: here and --model {option}" in capsys.readouterr().err
    assert asked == []


def test_options_reach_planning(asked: Asked) -> None:
    words = ["--dtype", "float16", "--op", "linear=native", "--strict", "--capabilities", "c.json"]
    assert run_command("explain", "here", *words) == 0
    ((args, file),) = asked
    assert (args.dtype, args.op, args.strict) == ("float16", ("linear=native",), True)
    assert file == Path("c.json")


def test_the_tree_goes_to_the_standard_output(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("explain") == 0
    said = capsys.readouterr()
    assert said.out.startswith("demo on platform cpu: LlamaForCausalLM in float32\n")
    assert said.err == ""
    assert run_command("explain", "--verbose") == 0
    assert "seed = 0" in capsys.readouterr().out
    assert run_command("explain", "--ops") == 0
    assert capsys.readouterr().out.startswith("switches: none given")


def test_json_is_the_plan_and_nothing_else(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("explain", "--json", "--platform", "acme") == 0
    assert plan_from_json(capsys.readouterr().out) == chip_plan()


def test_a_refusal_ends_with_2_and_every_reason(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("explain", "--platform", "nobody") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("dougong: error: The configuration cannot work:")
    assert "  - no platform nobody.\n  - no luck." in said.err


def test_a_saved_plan_is_the_plan_and_is_shown_too(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    assert run_command("explain", "--save", str(file)) == 0
    said = capsys.readouterr()
    assert plan_from_json(file.read_text("utf-8")) == plain_plan()
    assert said.out.startswith("demo on platform cpu")
    assert said.err.strip() == f"saved: {file}; insist on it with --plan {file}"


def test_no_file_is_written_over(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    file.write_text("precious", "utf-8")
    assert run_command("explain", "--save", str(file)) == 2
    assert "never written over" in capsys.readouterr().err
    assert file.read_text("utf-8") == "precious"
    assert run_command("explain", "--save", str(tmp_path / "no" / "plan.json")) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert asked == [], "refused before anything was planned"


def test_a_difference_is_shown_and_is_no_failure(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("explain", "here", "--diff", "acme", "--dtype", "float16") == 0
    assert "difference" in capsys.readouterr().out.splitlines()[0]
    (here, _), (other, _) = asked
    assert (here.platform, other.platform) == (None, "acme")
    assert here.dtype == other.dtype == "float16", "the options hold for both sides"
    assert run_command("explain", "--diff", "acme", "--json") == 0
    assert json.loads(capsys.readouterr().out)["other"]["platform"] == "acme"


def test_two_views_at_once_are_refused(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("explain", "--diff", "acme", "--ops") == 2
    assert "Give one of them" in capsys.readouterr().err


def test_help_imports_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys\nfrom dougong.cli.main import main\n"
        "try:\n    main(['explain', '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'dougong.engine', 'dougong.planner'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert "--capabilities" in done.stdout
