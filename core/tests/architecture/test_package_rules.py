"""The import rules between the packages (``tooling/importlinter-packages.toml``) can fail."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture.import_linter import lint

RULES = Path(__file__).parents[2] / "tooling" / "importlinter-packages.toml"

CONTRACTS = {
    rule["id"]: rule
    for rule in tomllib.loads(RULES.read_text())["tool"]["importlinter"]["contracts"]
}
# A module that gets the import, what it imports, and the rule that must name the two.
PLANTED = {
    "a plugin into the engine": (
        "dougong_sim.planted_a",
        "dougong.engine",
        "plugins-see-published-surface",
    ),
    "a plugin into errors, which contracts re-export": (
        "dougong_sim.planted_b",
        "dougong.errors",
        "plugins-see-published-surface",
    ),
    "a vendor's plugin into the planner": (
        "dougong_ascend.planted_a",
        "dougong.planner",
        "plugins-see-published-surface",
    ),
    "another vendor's plugin into the scheduler": (
        "dougong_xpu.planted_a",
        "dougong.scheduler",
        "plugins-see-published-surface",
    ),
    "a third vendor's plugin into the worker": (
        "dougong_rocm.planted_a",
        "dougong.worker",
        "plugins-see-published-surface",
    ),
    "a vendor into another one": (
        "dougong_rocm.planted_b",
        "dougong_xpu",
        "plugins-know-no-other",
    ),
    "a vendor into the example": (
        "dougong_ascend.planted_b",
        "dougong_sim",
        "plugins-know-no-other",
    ),
    "the portable kernels into the contracts": (
        "dougong_triton_kernels.planted_a",
        "dougong.contracts",
        "kernels-know-no-core",
    ),
    "the portable kernels into a vendor": (
        "dougong_triton_kernels.planted_b",
        "dougong_rocm",
        "kernels-know-no-core",
    ),
    "a vendor into the doubles, which are for tests": (
        "dougong_xpu.planted_b",
        "dougong_conformance.ladder",
        "the-suite-is-nobodys-dependency",
    ),
    "a check into the tools of the ladder": (
        "dougong_conformance.suite.planted_c",
        "dougong_conformance.ladder",
        "the-judge-is-clean",
    ),
    "the tools of the ladder into a vendor": (
        "dougong_conformance.ladder.planted",
        "dougong_ascend",
        "the-suite-names-no-vendor",
    ),
    "a report into the tools of the ladder": (
        "dougong_conformance.report.planted",
        "dougong_conformance.ladder",
        "the-suite-needs-no-ladder",
    ),
    "evidence into the core": (
        "dougong_conformance.ladder.evidence.planted",
        "dougong.contracts",
        "evidence-is-plain",
    ),
    "a vendor's runtime into the contracts": (
        "dougong_sim.device.planted",
        "dougong.contracts",
        "a-runtime-knows-no-core",
    ),
    "the core into the suite": (
        "dougong.engine.planted",
        "dougong_conformance.kit",
        "the-suite-is-nobodys-dependency",
    ),
    "a plugin into the suite": (
        "dougong_sim.planted_c",
        "dougong_conformance.session",
        "the-suite-is-nobodys-dependency",
    ),
    "a check into the core": (
        "dougong_conformance.suite.planted_a",
        "dougong.contracts",
        "the-judge-is-clean",
    ),
    "a check into a driver": (
        "dougong_conformance.suite.planted_b",
        "dougong_conformance.drivers",
        "the-judge-is-clean",
    ),
    "the oracle into the session": (
        "dougong_conformance.kit.planted",
        "dougong_conformance.session",
        "the-judge-is-clean",
    ),
    "the suite into a plugin": (
        "dougong_conformance.selftest.planted",
        "dougong_sim",
        "the-suite-names-no-vendor",
    ),
    "the runner into the command line": (
        "dougong_conformance.runner.planted",
        "dougong_conformance.cli",
        "nothing-stands-on-the-command",
    ),
}


def _modules() -> set[str]:
    named = {name for rule in CONTRACTS.values() for name in _names(rule)}
    return {name for name in named if name.startswith("dougong")} | {"dougong.contracts"}


def _names(rule: dict[str, object]) -> list[str]:
    keys = (
        "source_modules",
        "forbidden_modules",
        "modules",
        "protected_modules",
        "allowed_importers",
    )
    return [str(name) for key in keys for name in _as_list(rule.get(key, ()))]


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _skeleton(folder: Path) -> None:
    for name in sorted(_modules()):
        place = folder.joinpath(*name.split("."))
        place.mkdir(parents=True, exist_ok=True)
        (place / "__init__.py").write_text("")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("planted")
    _skeleton(folder)
    for module, imported, _ in PLANTED.values():
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        path.write_text(f"import {imported}\n")
    status, output = lint(RULES, folder)
    assert status == 1, output
    return output.split("Broken contracts", 1)[1]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_is_caught_by_the_rule_against_it(name: str, report: str) -> None:
    module, imported, rule = PLANTED[name]
    heading = str(CONTRACTS[rule]["name"])
    said = report.split(heading, 1)[1] if heading in report else ""
    assert re.search(rf"{re.escape(module)} -> {re.escape(imported)}\b", said), report


def test_every_rule_has_a_planted_import() -> None:
    assert {rule for _, _, rule in PLANTED.values()} == CONTRACTS.keys()


def test_the_bare_skeleton_breaks_nothing(tmp_path: Path) -> None:
    _skeleton(tmp_path)
    status, output = lint(RULES, tmp_path)
    assert status == 0, output


def test_plugins_are_kept_to_the_same_rooms_as_the_cpu_platform() -> None:
    inside = tomllib.loads(RULES.with_name("importlinter.toml").read_text())
    rules = {rule["id"]: rule for rule in inside["tool"]["importlinter"]["contracts"]}
    own = set(rules["plugins-see-published-surface"]["forbidden_modules"])
    rule = CONTRACTS["plugins-see-published-surface"]
    assert set(_as_list(rule["forbidden_modules"])) == own | {"dougong.cpu"}


def test_every_vendor_is_kept_by_the_rules_for_plugins() -> None:
    plugins = {"dougong_ascend", "dougong_rocm", "dougong_sim", "dougong_xpu"}
    assert set(_as_list(CONTRACTS["plugins-see-published-surface"]["source_modules"])) == plugins
    assert set(_as_list(CONTRACTS["plugins-know-no-other"]["modules"])) == plugins
    assert plugins < set(_as_list(CONTRACTS["the-suite-is-nobodys-dependency"]["source_modules"]))
