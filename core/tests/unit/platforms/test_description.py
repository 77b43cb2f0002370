from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.errors import PlatformSelectionError, PluginError
from dougong.platforms.description import open_for_description, open_present_platform
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub

NOT_HERE = 'return NotHere("no /dev/fake0")'


def test_a_platform_that_is_not_here_can_be_asked(installed: Installed) -> None:
    installed.add(Stub(probe=NOT_HERE))
    loaded = open_for_description("fake", installed.table())
    assert loaded is not None
    assert loaded.platform.claims("fake1").dtypes == ("float32",)
    assert loaded.selection.devices == ()
    assert loaded.selection.reasons == (
        "platform fake: described, no device asked (not here: no /dev/fake0)",
    )


def test_one_that_is_here_can_be_asked_for_another_machine(installed: Installed) -> None:
    installed.add(Stub())
    loaded = open_for_description("fake", installed.table())
    assert loaded is not None
    assert loaded.selection.devices == ()


def test_one_that_is_not_installed_is_none(installed: Installed) -> None:
    assert open_for_description("fake", installed.table()) is None


def test_what_would_extend_it_where_it_is_goes_with_it(installed: Installed) -> None:
    installed.add(Stub(probe=NOT_HERE))
    extension = Stub(distribution="ext", name="ext", has_platform=False, probe=NOT_HERE)
    installed.add(extension)
    for_another = replace(extension, distribution="far", name="far", for_platforms=("other",))
    installed.add(for_another)
    loaded = open_for_description("fake", installed.table())
    assert loaded is not None
    assert [row.name for row in loaded.selection.extensions] == ["ext"]


def test_an_extension_that_is_not_here_stays_away_from_a_platform_that_is(
    installed: Installed,
) -> None:
    installed.add(Stub())
    installed.add(Stub(distribution="ext", name="ext", has_platform=False, probe=NOT_HERE))
    loaded = open_for_description("fake", installed.table())
    assert loaded is not None
    assert loaded.selection.extensions == ()


def test_a_broken_one_is_its_vendors_affair(installed: Installed) -> None:
    installed.add(Stub(plugin_head="1 / 0"))
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        open_for_description("fake", installed.table())


def test_an_excluded_one_is_the_users_affair(installed: Installed) -> None:
    installed.add(Stub())
    with pytest.raises(PlatformSelectionError, match="not in DOUGONG_PLUGINS"):
        open_for_description("fake", installed.table(allowed=()))


def test_without_a_file_a_platform_that_is_not_here_is_refused_with_how_to_get_one(
    installed: Installed,
) -> None:
    installed.add(Stub(probe=NOT_HERE))
    with pytest.raises(PlatformSelectionError) as caught:
        open_present_platform("fake")
    message = str(caught.value)
    assert "no /dev/fake0" in message
    assert "dougong capabilities --platform fake --save fake.json" in message
    assert "dougong explain MODEL --capabilities fake.json" in message


def test_without_a_name_nothing_is_said_of_files(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOUGONG_PLATFORM", raising=False)
    installed.add(Stub())
    installed.add(Stub(distribution="other", name="other"))
    with pytest.raises(PlatformSelectionError) as caught:
        open_present_platform()
    assert "capability file" not in str(caught.value)
