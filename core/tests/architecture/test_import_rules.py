"""The import rules of ``tooling/importlinter.toml`` hold, are complete, and can fail.

A throw-away package of the same name is written from the rules' own layers, forbidden imports are
planted in it, and import-linter must name each of them under the rule it breaks.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.import_linter import lint

CORE = Path(__file__).parents[2]
RULES = CORE / "tooling" / "importlinter.toml"
PUBLISHED = {"contracts", "ops", "reference"}


def _rules() -> dict[str, dict[str, object]]:
    parsed = tomllib.loads(RULES.read_text())
    return {rule["id"]: rule for rule in parsed["tool"]["importlinter"]["contracts"]}


def _strings(rule: str, key: str) -> list[str]:
    value = _rules()[rule][key]
    assert isinstance(value, list)
    return [str(item) for item in value]


def _layers() -> dict[str, bool]:
    """Every layer, top first, and whether it must exist (no parentheses around it)."""
    names = [name.strip() for row in _strings("core-layers", "layers") for name in row.split("|")]
    return {name.strip("()"): not name.startswith("(") for name in names}


def _skeleton(folder: Path) -> Path:
    package = folder / "dougong"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for room in [*_layers(), "testing"]:
        (package / room).mkdir()
        (package / room / "__init__.py").write_text("")
        (package / room / "part.py").write_text("")
    return package


@dataclass(frozen=True)
class Planted:
    """One forbidden import: the rule it breaks, where it stands and what it says."""

    rule: str
    room: str
    source: str
    imported: str


LAZY = "def later() -> None:\n    import {0}\n    {0}\n"
FOR_A_TYPE = (
    "from typing import TYPE_CHECKING\n"
    "if TYPE_CHECKING:\n    from dougong.scheduler.part import Scheduler\n"
)
LAYERS = "core-layers"
VENDOR = "core-knows-no-vendor"
PLUGIN = "plugins-see-published-surface"
HOST = "host-side-needs-no-torch"
TESTING = "testing-is-for-tests"

PLANTED = {
    "messages to engine": Planted(LAYERS, "messages", "import dougong.engine.part", "engine"),
    "scheduler to worker": Planted(LAYERS, "scheduler", "import dougong.worker.part", "worker"),
    "worker to scheduler for a type": Planted(LAYERS, "worker", FOR_A_TYPE, "scheduler.part"),
    "kv_cache to models, lazily": Planted(
        LAYERS, "kv_cache", LAZY.format("dougong.models.part"), "models.part"
    ),
    "contracts to envs": Planted(LAYERS, "contracts", "import dougong.envs.part", "envs.part"),
    "contracts to engine": Planted(LAYERS, "contracts", "import dougong.engine.part", "engine"),
    "checkpoint to describe": Planted(
        LAYERS, "checkpoint", "import dougong.describe.part", "describe.part"
    ),
    "platforms to checkpoint": Planted(
        LAYERS, "platforms", "import dougong.checkpoint.part", "checkpoint.part"
    ),
    "reference to cpu": Planted(LAYERS, "reference", "import dougong.cpu.part", "cpu.part"),
    "core to a plugin": Planted(VENDOR, "engine", "import dougong_ascend", "dougong_ascend"),
    "core to a vendor's runtime": Planted(VENDOR, "reference", "import torch_npu", "torch_npu"),
    "core to triton, lazily": Planted(VENDOR, "ops", LAZY.format("triton"), "triton"),
    "core to the suite": Planted(
        VENDOR, "testing", "import dougong_conformance", "dougong_conformance"
    ),
    "cpu to engine": Planted(PLUGIN, "cpu", "import dougong.engine.part", "engine.part"),
    "cpu to errors": Planted(PLUGIN, "cpu", "import dougong.errors.part", "errors.part"),
    "cpu to worker, lazily": Planted(
        PLUGIN, "cpu", LAZY.format("dougong.worker.part"), "worker.part"
    ),
    "kv_cache to torch": Planted(HOST, "kv_cache", "import torch", "torch"),
    "messages to a part of torch": Planted(HOST, "messages", "import torch.nn", "torch"),
    "engine to testing": Planted(TESTING, "engine", "import dougong.testing.part", "testing.part"),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All planted at once, each in a module of its own: what was said, by the rule that said it."""
    folder = tmp_path_factory.mktemp("planted")
    package = _skeleton(folder)
    for name, planted in PLANTED.items():
        module = "planted_" + re.sub(r"\W+", "_", name)
        (package / planted.room / f"{module}.py").write_text(planted.source + "\n")
    status, output = lint(RULES, folder)
    assert status == 1, output
    headings = {rule["name"]: name for name, rule in _rules().items()}
    by_rule: dict[str, str] = {}
    current = ""
    for line in output.split("Broken contracts", 1)[1].splitlines():
        current = headings.get(line.strip(), current)
        by_rule[current] = by_rule.get(current, "") + line + "\n"
    return by_rule


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_is_caught_by_the_rule_against_it(
    name: str, reports: dict[str, str]
) -> None:
    planted = PLANTED[name]
    module = f"dougong.{planted.room}.planted_" + re.sub(r"\W+", "_", name)
    said = reports.get(planted.rule, "")
    found = re.search(rf"{re.escape(module)} -> \S*{re.escape(planted.imported)}\b", said)
    assert found, f"{planted.rule} did not name {module}; it said:\n{said}"


def test_the_bare_skeleton_breaks_nothing(tmp_path: Path) -> None:
    _skeleton(tmp_path)
    status, output = lint(RULES, tmp_path)
    assert status == 0, output


def test_a_new_package_must_be_given_a_layer(tmp_path: Path) -> None:
    package = _skeleton(tmp_path)
    (package / "novelty").mkdir()
    (package / "novelty" / "__init__.py").write_text("")
    status, output = lint(RULES, tmp_path)
    assert status == 1
    assert "novelty" in output


def test_a_layer_stands_in_parentheses_exactly_while_it_is_not_built() -> None:
    room = CORE / "src" / "dougong"
    built = {name for name in _layers() if (room / name).is_dir() or (room / f"{name}.py").exists()}
    assert built == {name for name, required in _layers().items() if required}


def test_the_plugin_rule_forbids_every_room_that_is_not_published() -> None:
    built = {name for name, required in _layers().items() if required} | {"testing"}
    forbidden = set(_strings(PLUGIN, "forbidden_modules"))
    assert forbidden == {f"dougong.{name}" for name in built - PUBLISHED - {"cpu"}}
