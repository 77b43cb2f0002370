from __future__ import annotations

import pytest

from dougong.errors import PlatformSelectionError, PluginError
from dougong.platforms.selection import Selection, select_platform
from dougong.platforms.table import PluginRow, PluginTable, Verdict
from tests.unit.platforms.rows import row

CPU = row("cpu")


def _select(*rows: PluginRow, name: str | None = None) -> Selection:
    return select_platform(PluginTable.of([CPU, *rows]), name)


def test_the_only_available_platform_is_chosen_and_cpu_is_no_rival() -> None:
    chosen = _select(row("acme"), row("other", Verdict.NOT_HERE, "no /dev/other0"))
    assert chosen.platform == "acme"
    assert not chosen.is_explicit
    assert "the only one that is available" in chosen.reasons[0]
    assert "other: no /dev/other0" in chosen.reasons[0]
    assert {r.name: r.verdict for r in chosen.table.rows} == {
        "acme": Verdict.CHOSEN,
        "cpu": Verdict.AVAILABLE,
        "other": Verdict.NOT_HERE,
    }


def test_cpu_is_chosen_when_nobody_else_is_here_and_every_reason_is_said() -> None:
    chosen = _select(
        row("acme", Verdict.NOT_HERE, "no /dev/acme0"),
        row("sim", auto_select=False),
        row("far", Verdict.EXCLUDED, "not in DOUGONG_PLUGINS=acme"),
    )
    assert chosen.platform == "cpu"
    for part in (
        "acme: no /dev/acme0",
        "sim: only runs when named (--platform sim)",
        "far: not in",
    ):
        assert part in chosen.reasons[0]


def test_without_other_plugins_cpu_says_so() -> None:
    assert "no other platform is installed" in _select().reasons[0]


def test_two_available_platforms_are_refused_naming_both_wheels_and_the_option() -> None:
    with pytest.raises(PlatformSelectionError) as caught:
        _select(row("acme"), row("other"))
    for part in ("acmeplat 1.0", "otherplat 1.0", "--platform acme or --platform other"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["acme", "other", "cpu", "sim"])
def test_a_named_platform_is_the_one(name: str) -> None:
    chosen = _select(row("acme"), row("other"), row("sim", auto_select=False), name=name)
    assert chosen.platform == name
    assert chosen.is_explicit


@pytest.mark.parametrize(
    ("other", "name", "told"),
    [
        (
            row("acme"),
            "acne",
            r"Installed: acme, cpu. Did you mean 'acme'",
        ),
        (
            row("acme", Verdict.NOT_HERE, "no /dev/acme0"),
            "acme",
            "no other one.*/dev/acme0",
        ),
        (row("acme", Verdict.EXCLUDED, "not in DOUGONG_PLUGINS=x"), "acme", "DOUGONG_PLUGINS=x"),
        (row("ops", platform=None), "ops", "brings ops or models and no platform"),
    ],
)
def test_a_named_platform_that_cannot_run_is_refused(
    other: PluginRow, name: str, told: str
) -> None:
    with pytest.raises(PlatformSelectionError, match=told):
        _select(other, name=name)


@pytest.mark.parametrize("verdict", [Verdict.BROKEN, Verdict.REFUSED])
def test_a_plugin_at_fault_stops_an_automatic_start_and_names_three_ways_out(
    verdict: Verdict,
) -> None:
    bad = row("bad", verdict, "ImportError: badrt")
    with pytest.raises(PluginError) as caught:
        _select(bad, row("acme"))
    lines = str(caught.value).splitlines()
    for way in ("Mend it", "pip uninstall badplat", "--platform cpu"):
        assert way in lines[0]
    assert lines[-1] == bad.sentence()


def test_a_plugin_at_fault_does_not_stop_an_explicit_start_and_stays_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = row("bad", Verdict.BROKEN, "ImportError: badrt")
    chosen = _select(bad, row("acme"), name="acme")
    assert chosen.platform == "acme"
    assert bad in chosen.table.rows
    assert caplog.messages == [f"not used: {bad.sentence()}"]


def test_naming_a_plugin_at_fault_is_an_error_that_ends_with_its_sentence() -> None:
    bad = row("bad", Verdict.BROKEN, "ImportError: badrt")
    with pytest.raises(PluginError) as caught:
        _select(bad, name="bad")
    assert str(caught.value).splitlines()[-1] == bad.sentence()
    assert "no other one takes its place" in str(caught.value)


def test_a_broken_extension_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """And nobody overlooks it: each one is told, and told once."""
    bad = row("ops", Verdict.BROKEN, "its probe raised ImportError", platform=None)
    refused = row("more", Verdict.REFUSED, "contract >=2", platform=None)
    assert _select(bad, refused).platform == "cpu"
    told = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert told == [("WARNING", f"not used: {fault.sentence()}") for fault in (refused, bad)]


def test_a_fault_that_a_parent_has_told_is_not_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = row("ops", Verdict.BROKEN, "its probe raised ImportError", platform=None)
    select_platform(PluginTable.of([CPU, bad]), tells_faults=False)
    assert caplog.text == ""


def test_an_excluded_plugin_stops_nobody() -> None:
    assert _select(row("bad", Verdict.EXCLUDED, "not in DOUGONG_PLUGINS=cpu")).platform == "cpu"


def test_extensions_of_the_platform_and_of_any_platform_go_with_it() -> None:
    chosen = _select(
        row("acme"),
        row("all-ops", platform=None),
        row("acme-ops", platform=None, for_platforms=("acme",)),
        row("other-ops", platform=None, for_platforms=("other",)),
        row("far-ops", Verdict.NOT_HERE, "no compiler", platform=None),
    )
    assert [extension.name for extension in chosen.extensions] == ["acme-ops", "all-ops"]
    verdicts = {r.name: r.verdict for r in chosen.table.rows}
    assert verdicts["acme-ops"] is Verdict.CHOSEN
    assert verdicts["other-ops"] is Verdict.AVAILABLE


def test_a_machine_without_any_platform_is_told_what_was_found() -> None:
    broken = row("cpu", Verdict.NOT_HERE, "no processor")
    with pytest.raises(PlatformSelectionError, match="no processor"):
        select_platform(PluginTable.of([broken]))


def test_devices_are_chosen_with_the_platform() -> None:
    assert _select(row("acme"), name="acme").device_indices == (0,)
    with pytest.raises(PlatformSelectionError, match="--devices 3"):
        select_platform(PluginTable.of([CPU]), "cpu", "3")
