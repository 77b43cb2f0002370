from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.errors import ConfigError
from dougong.platforms.discovery import discover
from dougong.platforms.probing import ProbeCache
from dougong.platforms.table import Verdict
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub


def test_a_plugin_whose_probe_finds_devices_is_available(installed: Installed) -> None:
    installed.add(Stub())
    (row,) = installed.table().rows
    assert row.verdict is Verdict.AVAILABLE
    assert [device.name for device in row.devices] == ["Fake 1"]
    assert row.plugin is not None


@pytest.mark.parametrize(
    ("change", "verdict", "told"),
    [
        ({"probe": 'return NotHere("no /dev/fake0")'}, Verdict.NOT_HERE, "no /dev/fake0"),
        ({"probe": 'raise OSError("boom")'}, Verdict.BROKEN, "its probe raised OSError: boom"),
        ({"probe": "return 3"}, Verdict.BROKEN, "type int"),
        ({"plugin_head": 'raise ImportError("fakert")'}, Verdict.BROKEN, "ImportError: fakert"),
        ({"plugin_head": "import sys; sys.exit(0)"}, Verdict.BROKEN, "SystemExit: 0"),
        ({"requires_contract": ">=2,<3"}, Verdict.REFUSED, "contract 1."),
        ({"requires_dist": ("dougong>=99",)}, Verdict.REFUSED, "dougong>=99"),
    ],
)
def test_what_keeps_a_plugin_out_is_its_verdict_and_its_reason(
    installed: Installed, change: dict[str, str], verdict: Verdict, told: str
) -> None:
    installed.add(replace(Stub(), **change))  # type: ignore[arg-type]  # fields of several types
    (row,) = installed.table().rows
    assert row.verdict is verdict
    assert told in row.reason
    assert "\n" not in row.sentence()
    assert bool(row.traceback) is ("raise" in str(change) or "exit" in str(change))


def test_a_wheel_for_another_core_is_not_even_imported(installed: Installed) -> None:
    installed.add(Stub(requires_dist=("dougong>=99",), plugin_head="import sys; sys.exit(0)"))
    (row,) = installed.table().rows
    assert row.verdict is Verdict.REFUSED


def test_a_plugin_for_another_contract_is_not_probed(installed: Installed) -> None:
    installed.add(Stub(requires_contract="<1", probe="import sys; sys.exit(0)"))
    assert installed.table().rows[0].verdict is Verdict.REFUSED


def test_an_object_that_is_no_descriptor_is_broken(installed: Installed) -> None:
    stub = installed.add(Stub())
    point = replace(installed.points()[0], value=f"{stub.package}.plugin:probe")
    table = discover(probes=ProbeCache(), entry_points=[point])
    assert table.rows[0].verdict is Verdict.BROKEN
    assert "function, not a PlatformPlugin" in table.rows[0].reason


def test_a_descriptor_under_another_name_is_broken(installed: Installed) -> None:
    installed.add(Stub())
    point = replace(installed.points()[0], name="other")
    (row,) = discover(probes=ProbeCache(), entry_points=[point]).rows
    assert row.verdict is Verdict.BROKEN
    assert "'fake'" in row.reason
    assert "'other'" in row.reason


def test_two_wheels_with_one_name_are_both_refused_naming_both(installed: Installed) -> None:
    installed.add(Stub(distribution="one", plugin_head="import sys; sys.exit(0)"))
    installed.add(Stub(distribution="two"))
    rows = installed.table().rows
    assert [row.verdict for row in rows] == [Verdict.REFUSED, Verdict.REFUSED]
    assert all("one 0.1 and by two 0.1" in row.reason for row in rows)


def test_a_shadowed_copy_is_listed_and_does_not_compete(installed: Installed) -> None:
    first = installed.add(Stub())
    installed.add(Stub(version="0.2"))
    rows = installed.table().rows
    assert [row.verdict for row in rows] == [Verdict.AVAILABLE, Verdict.SHADOWED]
    assert rows[0].path in rows[1].reason
    assert first.package in rows[0].entry_point


def test_the_order_is_not_that_of_installation(installed: Installed) -> None:
    for name in ("c", "a", "b"):
        installed.add(Stub(distribution=f"{name}plat", name=name))
    points = installed.points()
    tables = [
        discover(probes=ProbeCache(), entry_points=order)
        for order in (points, points[::-1], [points[1], points[0], points[2]])
    ]
    assert [row.name for row in tables[0].rows] == ["a", "b", "c"]
    assert tables[0] == tables[1] == tables[2]


def test_a_broken_plugin_does_not_hide_the_others(installed: Installed) -> None:
    installed.add(Stub(distribution="bad", name="bad", plugin_head="1 / 0"))
    installed.add(Stub(distribution="good", name="good"))
    assert [row.verdict for row in installed.table().rows] == [Verdict.BROKEN, Verdict.AVAILABLE]


def test_a_plugin_outside_the_allow_list_is_excluded_unseen(installed: Installed) -> None:
    installed.add(Stub(distribution="bad", name="bad", plugin_head="import sys; sys.exit(0)"))
    installed.add(Stub(distribution="good", name="good"))
    rows = installed.table(allowed=("good",)).rows
    assert [row.verdict for row in rows] == [Verdict.EXCLUDED, Verdict.AVAILABLE]
    assert "DOUGONG_PLUGINS=good" in rows[0].reason


def test_an_unknown_name_in_the_allow_list_is_an_error_that_lists_what_there_is(
    installed: Installed,
) -> None:
    installed.add(Stub(distribution="good", name="good"))
    with pytest.raises(ConfigError, match=r"'goood'.*Discovered: good\. Did you mean 'good'\?"):
        installed.table(allowed=("goood",))


def test_cpu_is_always_allowed_and_may_be_named() -> None:
    table = discover(allowed=("cpu",), probes=ProbeCache())
    assert [r.verdict for r in table.named("cpu")] == [Verdict.AVAILABLE]
    table = discover(allowed=(), probes=ProbeCache())
    assert [r.verdict for r in table.named("cpu")] == [Verdict.AVAILABLE]


_COUNTED = """
calls.append(1)
return NotHere(str(len(calls)))
"""


def test_a_second_discovery_asks_no_probe_again(installed: Installed) -> None:
    installed.add(Stub(plugin_head="calls = []", probe=_COUNTED))
    probes = ProbeCache()
    for _ in range(2):
        (row,) = discover(probes=probes, entry_points=installed.points()).rows
        assert row.reason == "1"
