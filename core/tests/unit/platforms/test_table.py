from __future__ import annotations

import json
from dataclasses import replace

from dougong.platforms.table import PluginTable, Verdict
from tests.unit.platforms.rows import row


def test_rows_are_ordered_by_name_then_wheel_then_who_counts() -> None:
    rows = [
        row("b"),
        replace(row("a", Verdict.SHADOWED), path="/a"),
        row("a"),
        row("a", distribution="aaa"),
    ]
    table = PluginTable.of(rows)
    assert table == PluginTable.of(rows[::-1])
    assert [(r.distribution, r.verdict) for r in table.rows] == [
        ("aaa", Verdict.AVAILABLE),
        ("aplat", Verdict.AVAILABLE),
        ("aplat", Verdict.SHADOWED),
        ("bplat", Verdict.AVAILABLE),
    ]
    assert len(table.named("a")) == 2


def test_a_sentence_has_everything_a_report_needs() -> None:
    sentence = row("acme", Verdict.BROKEN, "ImportError: acmert").sentence()
    assert sentence == (
        "acmeplat 1.0 (entry point acme = acmeplat.plugin:plugin): broken: ImportError: acmert"
    )


def test_json_holds_every_field_but_the_descriptor() -> None:
    (plain,) = json.loads(json.dumps(PluginTable.of([row("acme")]).to_json()))
    assert plain["verdict"] == "available"
    assert plain["devices"][0]["uuid"] == "u0"
    assert "plugin" not in plain


def test_only_broken_and_refused_are_faults() -> None:
    table = PluginTable.of(row(verdict.value, verdict) for verdict in Verdict)
    assert {r.name for r in table.faults()} == {"broken", "refused"}
