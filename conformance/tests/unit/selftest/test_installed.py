from __future__ import annotations

import os
import subprocess
import sys

from dougong.platforms.entry_points import find_entry_points

from dougong_conformance.requirements import all_requirements
from dougong_conformance.selftest.installed import BY_NAME, installed, mutant_name
from dougong_conformance.selftest.mutant import all_mutants

_MINE = {
    "discovery", "identity", "memory", "streams", "worker", "graph", "engine", "performance",
}  # fmt: skip


def test_an_installed_mutant_is_found_by_name_and_gone_afterwards() -> None:
    before = (list(sys.path), os.environ.get("DOUGONG_PLUGINS"), os.environ.get("PYTHONPATH"))
    with installed(all_mutants()["N13"], "cpu") as plugin:
        assert plugin.name == mutant_name("N13") == plugin.make_platform().name
        assert plugin.name in {point.name for point in find_entry_points()}
        assert not plugin.make_platform().claims("no such family").is_generic
        assert {one.mark.key for one in plugin.registrations} >= {"rms_norm"}
    assert plugin.name not in {point.name for point in find_entry_points()}
    after = (list(sys.path), os.environ.get("DOUGONG_PLUGINS"), os.environ.get("PYTHONPATH"))
    assert before == after


def test_the_good_plugin_stays_good_when_a_mutant_is_made_of_it() -> None:
    from dougong_conformance.session import load_plugin

    good = load_plugin("cpu")
    changed = all_mutants()["M03"].apply(good)
    info = good.make_platform().runtime.memory_info(0)
    assert changed.make_platform().runtime.memory_info(0).total_bytes == info.total_bytes >> 20
    assert good.make_platform().runtime.memory_info(0).total_bytes == info.total_bytes


def test_what_finds_a_mutant_imports_no_torch() -> None:
    code = (
        "import sys; from dougong_conformance.selftest import installed; "
        "from dougong_conformance.selftest.mutants import discovery, identity; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_each_mutant_of_the_system_profiles_is_named_by_the_row_of_its_killer() -> None:
    rows = all_requirements()
    named = {mutant: row.id for row in rows.values() for mutant in row.kills}
    for mutant in all_mutants().values():
        if mutant.killer.partition(".")[0] in _MINE:
            assert named.get(mutant.id) == mutant.killer


def test_each_check_of_the_system_profiles_rejects_a_mutant_or_is_named_redundant() -> None:
    for row in all_requirements().values():
        if row.profile in _MINE and not row.is_provisional:
            assert row.kills or row.redundant_with, row.id


def test_profiles_that_start_engines_are_run_by_name() -> None:
    assert {"discovery", "worker", "engine", "performance"} <= BY_NAME
