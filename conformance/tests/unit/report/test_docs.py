from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.ladder import FROM_FILES, MEANINGS, evidence_from_json

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")


def write_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "write_docs", ROOT / "conformance" / "tools" / "write_docs.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_parts_of_the_page_that_come_from_code_are_up_to_date() -> None:
    assert write_docs().with_generated_parts(PAGE) == PAGE, (
        "run: python conformance/tools/write_docs.py"
    )


def test_the_page_has_every_outcome_every_exit_code_and_every_rung() -> None:
    table = dict(re.findall(r"^\| `?(\w+)`? \| (.+?) \|", PAGE, re.MULTILINE))
    for outcome in Outcome:
        assert outcome.value in table
    for code in range(8):
        assert str(code) in table
    for name, meaning in MEANINGS.items():
        assert meaning.startswith(table[name].partition(" (")[0])
    for name in FROM_FILES:
        assert re.search(rf"^\| {name} \|.*\| a file of your tests \|", PAGE, re.MULTILINE)


def test_the_example_of_evidence_fits_its_schema() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert evidence_from_json(json.loads(example)).rung == "L0"


def test_outputs_and_generated_parts_are_replaced_and_nothing_between_them() -> None:
    module = write_docs()
    text = (
        "a\n```console run\n$ dougong-conform explain x\n```\nb\n"
        "```console run\n$ dougong-conform explain y\nold\n```\nc\n```yaml\n- run: x\n```\n"
    )
    ran: list[str] = []

    def run(command: str, folder: Path) -> str:
        ran.append(command)
        return f"```console run\n$ {command}\nnew\n```"

    vars(module)["_run"] = run
    told = text.replace("explain x\n", "explain x\nnew\n").replace("old", "new")
    assert module.with_outputs(text) == told
    assert ran == ["dougong-conform explain x", "dougong-conform explain y"]
    block = "<!-- generated: commands -->\n{}<!-- end -->\n"
    blocks = f"a\n{block.format('')}b\n{block.format('old' + chr(10))}c"
    found = module.with_generated_parts(blocks)
    assert found.count("| `certify` |") == 2
    assert "\nb\n" in found
    assert "old" not in found
    assert module.with_generated_parts(found) == found
