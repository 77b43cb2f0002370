"""The commands that read what runs left: report, compare, explain, verify."""

from __future__ import annotations

import importlib.metadata as metadata
import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dougong_conformance.cli import compare, explain, report, verify
from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.certificate import canonical_sha256, certificate, to_text
from dougong_conformance.report.model import make_report
from dougong_conformance.report.wheel_record import of_installed
from dougong_conformance.report.write import write_all
from dougong_conformance.results import PluginIdentity, write_record
from tests.unit.report import made_up

EXAMPLES = Path(__file__).parents[4] / "docs" / "certificate"
LINEAR = "ops.linear[bfloat16]"


def run(module: Any, *arguments: str) -> Result:
    import typer

    app = typer.Typer()
    module.register(app)
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    rows = [
        replace(one, outcome=Outcome.FAIL, reason="wrong") if one.id == LINEAR else one
        for one in made_up.passing().results
    ]
    runs = {"old": made_up.passing(), "new": made_up.record(rows), "empty": made_up.empty()}
    for name, record in runs.items():
        write_all(record, root / name, made_up.requirements())
    return {name: root / name for name in runs}


def test_report_writes_the_forms_that_are_asked_for_and_names_them(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copy(folders["old"] / "report.json", tmp_path)
    done = run(report, str(tmp_path), "--format", "html,badge")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == "Core 1.0 passed, Ext 10/12, 0 waived"
    assert {path.name for path in tmp_path.iterdir()} == {
        *("report.json", "report.html", "badge.json", "badge.svg"),
    }


def test_report_takes_evidence_that_came_later_into_the_ladder(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copy(folders["old"] / "report.json", tmp_path)
    (tmp_path / "evidence").mkdir()
    evidence = {
        "format": "conformance-evidence/1", "rung": "L5", "what": "all kernels agree on the CPU",
        "command": "pytest tests/kernels", "when": "2026-11-30", "result": "passed",
        "distribution": "dougong-sim", "version": "0.1.0",
    }  # fmt: skip
    (tmp_path / "evidence" / "l5.json").write_text(json.dumps(evidence))
    assert run(report, str(tmp_path)).exit_code == 0
    ladder = json.loads((tmp_path / "report.json").read_text())["ladder"]
    assert [one["rung"] for one in ladder if one["state"] == "reached"] == ["L3", "L5"]


def test_report_can_start_from_the_record_alone(tmp_path: Path) -> None:
    write_record(made_up.empty(), tmp_path)
    assert run(report, str(tmp_path), "--format", "json").exit_code == 0
    assert (tmp_path / "report.json").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("{}", "--format", "pdf"), "--format pdf is unknown. Known ones: json, md"),
        (("{}/nowhere",), "holds neither report.json nor record.json"),
    ],
)
def test_report_refuses_what_it_cannot_read(
    folders: dict[str, Path], arguments: tuple[str, ...], reason: str
) -> None:
    done = run(report, *(one.format(folders["old"]) for one in arguments))
    assert done.exit_code == 2
    assert reason in done.output
    assert done.output.splitlines()[-1].startswith("dougong-conform: exit 2: ")


def test_compare_shows_regressions_and_ends_with_1_only_where_that_is_asked(
    folders: dict[str, Path],
) -> None:
    pair = (str(folders["old"]), str(folders["new"] / "report.json"))
    done = run(compare, *pair)
    assert done.exit_code == 0
    assert "comparable" in done.output
    assert "✗ regressions (1)" in done.output
    assert LINEAR in done.output
    assert done.output.splitlines()[-1] == "1 regression, of them 0 newly not claimed; 0 fixed"
    gated = run(compare, *pair, "--fail-on", "regression")
    assert gated.exit_code == 1
    assert gated.output.splitlines()[-1] == f"dougong-conform: exit 1: 1 regression; first {LINEAR}"
    assert run(compare, *reversed(pair), "--fail-on", "regression").exit_code == 0


def test_a_gate_that_cannot_compare_is_not_green(folders: dict[str, Path]) -> None:
    done = run(compare, str(folders["old"]), str(folders["empty"]), "--fail-on", "regression")
    assert done.exit_code == 3
    assert "not comparable: " in done.output.splitlines()[-1]


def test_compare_prints_json_for_programs(folders: dict[str, Path]) -> None:
    done = run(compare, str(folders["old"]), str(folders["new"]), "--json")
    told = json.loads(done.output)
    assert told["is_comparable"] is True
    assert [one["id"] for one in told["regressions"]] == [LINEAR]


def test_compare_refuses_what_is_no_report(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    assert run(compare, str(folders["old"]), str(tmp_path)).exit_code == 2
    assert run(compare, "a", "b", "--fail-on", "anything").exit_code == 2


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "all_requirements", made_up.requirements)
    monkeypatch.setattr(explain, "_defects", lambda row: {"O15": "bias ignored"})


@pytest.mark.usefixtures("spec")
@pytest.mark.parametrize("id", ["ops.linear", LINEAR, "O15", "o15"])
def test_explain_takes_a_requirement_a_case_or_a_mutant(id: str) -> None:
    done = run(explain, id)
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0] == "ops.linear: linear"
    assert "linear multiplies with the transposed weight" in lines[1]
    assert "level: must, Core" in lines
    assert "capability: none: every plugin must meet it" in lines
    assert "rejects mutant: O15: bias ignored" in lines
    assert "run it alone: dougong-conform run --plugin NAME -k ops.linear --out out" in lines


@pytest.mark.usefixtures("spec")
def test_explain_tells_what_is_provisional_and_where_it_was_seen() -> None:
    assert "provisional: told, and counted neither" in run(explain, "lora.unload").output
    assert "seen in: https://github.com/vllm-project" in run(explain, "attention.decode").output
    assert "must, Extended" in run(explain, "attention.sinks").output
    told = json.loads(run(explain, "ops.linear", "--json").output)
    assert told["kills"][0] == {"id": "O15", "defect": "bias ignored"}
    assert told["is_core"] is True


@pytest.mark.usefixtures("spec")
@pytest.mark.parametrize(
    ("wrong", "near"), [("ops.rmsnorm", "ops.rms_norm"), ("sliding", "attention.sliding_window")]
)
def test_explain_names_close_ids_for_a_wrong_one(wrong: str, near: str) -> None:
    done = run(explain, wrong)
    assert done.exit_code == 2
    assert f"there is no requirement {wrong!r}. Close ones: " in done.output
    assert near in done.output


def _write(file: Path, **changes: Any) -> Path:
    """A certificate of this day for the installed pytest, as if it were a plugin."""
    record = made_up.passing()
    plugin = PluginIdentity(
        name="cpu", distribution="pytest", version=metadata.version("pytest"), record_sha256="a"
    )
    head = replace(record.header, plugin=plugin, started=f"{date.today()}T00:00:00Z")
    made = make_report(replace(record, header=head), requirements=made_up.requirements())
    content = certificate(made, of_installed("pytest"))
    file.write_text(to_text(content))
    return file


def test_verify_says_what_a_certificate_claims_and_that_it_holds(tmp_path: Path) -> None:
    file = _write(tmp_path / "c.json")
    done = run(verify, str(file))
    assert done.exit_code == 0, done.output
    first, second = done.output.splitlines()
    assert "(platform cpu): Core 1.0 36/36, Ext 10/12, 0 waived; ladder L3, on a device double" in (
        first
    )
    assert second == "holds; no wheel was named to hold it against"


def test_verify_holds_it_against_a_wheel_file(tmp_path: Path) -> None:
    import zipfile

    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a-1.dist-info/RECORD", (EXAMPLES / "RECORD").read_text())
    done = run(verify, str(_write(tmp_path / "c.json")), "--wheel", str(wheel))
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == (
        "dougong-conform: exit 1: the wheel is another build than the one that was tested"
    )


def test_verify_refuses_a_plugin_of_another_wheel(tmp_path: Path) -> None:
    done = run(verify, str(_write(tmp_path / "c.json")), "--plugin", "cpu")
    assert done.exit_code == 2
    assert "it is for pytest" in done.output
    assert "platform cpu is of dougong" in done.output
    assert run(verify, str(tmp_path / "c.json"), "--plugin", "nobody").exit_code == 2


def test_verify_refuses_an_installed_wheel_that_was_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(_write(tmp_path / "c.json").read_text())
    point = next(iter(metadata.entry_points(group="dougong.platform_plugins", name="cpu")))
    assert point.dist is not None
    rest = {
        **{name: value for name, value in content.items() if name != "sha256"},
        "distribution": point.dist.name,
        "version": point.dist.version,
        "record_sha256": of_installed(point.dist.name),
    }
    (tmp_path / "c.json").write_text(to_text({**rest, "sha256": canonical_sha256(rest)}))
    assert run(verify, str(tmp_path / "c.json"), "--plugin", "cpu").exit_code == 0
    monkeypatch.setattr(verify, "changed_files", lambda distribution: iter(["a.py", "b.py"]))
    done = run(verify, str(tmp_path / "c.json"), "--plugin", "cpu")
    assert done.exit_code == 1
    assert done.output.splitlines()[-1].endswith("was edited: a.py and 1 more")


def test_verify_refuses_what_is_no_certificate(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    for text in ("{", "{}", '{"format": "conformance-certificate/1"}'):
        file.write_text(text)
        assert run(verify, str(file)).exit_code == 2
    assert run(verify, str(tmp_path / "none.json")).exit_code == 2
    assert run(verify, str(file), "--wheel", "a", "--plugin", "b").exit_code == 2
