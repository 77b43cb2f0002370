from __future__ import annotations

from dougong.platforms.examination import examine_rest, unknown_names
from dougong.platforms.probing import ProbeCache
from dougong.platforms.selection import select_platform
from dougong.platforms.table import PluginTable, Verdict
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub
from tests.unit.platforms.rows import row


def test_those_that_would_not_load_are_found_without_loading_them_here(
    installed: Installed,
) -> None:
    """One process crashes in native code, one leaves, one lacks a method, one is fine."""
    bodies = {
        "chosen": "",
        "fine": "",
        "raises": 'raise ImportError("fakert")',
        "crashes": "import os; os._exit(9)",
        "unknown": "def dougong_nothing(): ...",
    }
    for name, body in bodies.items():
        # Probes would be asked again in the child if answers were not handed over.
        installed.add(Stub(distribution=name, name=name, hooks=body))
    probes = ProbeCache()
    table = select_platform(installed.table(probes=probes), "chosen").table
    rows = {r.name: r for r in examine_rest(table, probes).rows}
    assert {name: r.verdict for name, r in rows.items()} == {
        "chosen": Verdict.CHOSEN,
        "fine": Verdict.AVAILABLE,
        "raises": Verdict.BROKEN,
        "crashes": Verdict.BROKEN,
        "unknown": Verdict.REFUSED,
    }
    assert rows["raises"].reason == "loading it raised ImportError: fakert"
    assert "fakert" in rows["raises"].traceback
    assert "code 9" in rows["crashes"].reason
    assert "dougong_nothing is no hook" in rows["unknown"].reason


def test_nothing_is_started_when_everybody_is_known() -> None:
    table = PluginTable.of([row("cpu"), row("acme", Verdict.CHOSEN), row("x", Verdict.NOT_HERE)])
    assert unknown_names(table) == []
    assert unknown_names(table, skips=()) == ["cpu"]
    assert examine_rest(table) is table
