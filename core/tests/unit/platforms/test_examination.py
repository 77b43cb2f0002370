from __future__ import annotations

from typing import Any

import pytest

from dougong.platforms import examination
from dougong.platforms.examination import (
    _judged_from_outside,
    examine_in_background,
    examine_rest,
    unknown_names,
)
from dougong.platforms.probing import ProbeCache
from dougong.platforms.selection import select_platform
from dougong.platforms.short_lived import ChildFailed
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


def test_one_that_hangs_stays_available_untried_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[list[str], float]] = []

    def ask(module: str, question: Any, timeout_s: float) -> dict[str, tuple[str, str, str]]:
        names: list[str] = question["names"]
        asked.append((names, timeout_s))
        if "hangs" in names:
            raise ChildFailed("it gave no answer", is_timeout=True)
        return {"raises": ("broken", "it raises", "")} if "raises" in names else {}

    monkeypatch.setattr(examination, "ask_child", ask)
    table = examine_rest(PluginTable.of(map(row, ("a", "hangs", "raises"))), limit_s=12.0)
    assert {r.name: (r.verdict, r.reason) for r in table.rows} == {
        "a": (Verdict.AVAILABLE, ""),
        "hangs": (Verdict.AVAILABLE, "not tried in time: it gave no answer"),
        "raises": (Verdict.BROKEN, "it raises"),
    }
    assert [names for names, _ in asked] == [["a", "hangs", "raises"], ["a"], ["hangs"], ["raises"]]
    assert asked[0][1] == pytest.approx(6.0, abs=0.5)
    assert all(given_s <= 12.0 for _, given_s in asked)


def test_a_verdict_on_what_hangs_depends_on_the_time_it_had() -> None:
    hung = ChildFailed("it gave no answer", is_timeout=True)
    assert _judged_from_outside(hung, 2.0)[0] is Verdict.AVAILABLE
    assert _judged_from_outside(hung, 30.0)[0] is Verdict.BROKEN
    assert _judged_from_outside(ChildFailed("it ended"), 2.0)[0] is Verdict.BROKEN


def test_an_examination_that_cannot_be_made_leaves_the_table_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object, **options: object) -> PluginTable:
        raise OSError("no space left")

    monkeypatch.setattr(examination, "examine_rest", fail)
    table = PluginTable.of([row("cpu"), row("acme")])
    rest = examine_in_background(table)
    assert rest is not None
    assert rest.result() is table
    assert "could not be tried: no space left" in caplog.text
    assert examine_in_background(PluginTable.of([row("cpu")])) is None
