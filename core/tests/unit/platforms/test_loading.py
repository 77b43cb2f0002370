from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.contracts import Communicator, Worker
from dougong.cpu.platform import CpuPlatform
from dougong.errors import ContractError, PluginError
from dougong.platforms.loading import (
    check_runtime,
    import_object,
    instantiate,
    load_class,
    load_platform,
)
from dougong.platforms.selection import select_platform
from dougong.platforms.table import Verdict
from dougong.testing.null_platform import NullPlatform
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub
from tests.unit.platforms.rows import row

RAISES = "raise ModuleNotFoundError(\"No module named 'fakert'\")"
EXTENSION = Stub(distribution="fakeops", name="fakeops", has_platform=False)


def test_the_chosen_platform_is_made_and_its_hooks_are_loaded(installed: Installed) -> None:
    installed.add(Stub(hooks="def _private(): ..."))
    loaded = load_platform(select_platform(installed.table()))
    assert loaded.platform.name == "fake"
    assert loaded.selection.platform == "fake"
    assert loaded.registrations == ()
    assert loaded.table.rows[0].verdict is Verdict.CHOSEN


@pytest.mark.parametrize(("name", "is_explicit"), [(None, False), ("fake", True)])
def test_a_platform_whose_hooks_raise_ends_with_its_sentence(
    installed: Installed, name: str | None, is_explicit: bool
) -> None:
    stub = installed.add(Stub(hooks=RAISES))
    with pytest.raises(PluginError) as caught:
        load_platform(select_platform(installed.table(), name))
    last = str(caught.value).splitlines()[-1]
    entry = f"fakeplat 0.1 (entry point fake = {stub.package}.plugin:plugin)"
    cause = "ModuleNotFoundError: No module named 'fakert'"
    assert last == f"{entry}: broken: loading it raised {cause}"
    assert ("pip uninstall fakeplat" in str(caught.value)) is not is_explicit
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_platform_that_leaves_the_program_is_broken_too(installed: Installed) -> None:
    installed.add(Stub(hooks="import sys; sys.exit(0)"))
    with pytest.raises(PluginError, match="SystemExit: 0"):
        load_platform(select_platform(installed.table()))


def test_a_class_that_does_not_fit_is_refused_with_every_problem(installed: Installed) -> None:
    body = "from dougong.contracts import Platform\nclass StubPlatform(Platform): name = 'fake'"
    installed.add(Stub(platform_body=body))
    with pytest.raises(PluginError) as caught:
        load_platform(select_platform(installed.table()))
    last = str(caught.value).splitlines()[-1]
    assert ": refused: " in last
    for part in ("method claims", "method facts", "property runtime", "'device_type' is missing"):
        assert part in last


def test_a_class_with_another_name_than_its_descriptor_is_refused(installed: Installed) -> None:
    stub = Stub()
    installed.add(replace(stub, platform_body=None, name="other"))
    (found,) = installed.table().rows
    with pytest.raises(ContractError, match="name='other', and its descriptor says 'fake'"):
        instantiate(replace(found, name="fake"))


def test_a_broken_extension_is_undone_listed_and_left_out(
    installed: Installed, caplog: pytest.LogCaptureFixture
) -> None:
    installed.add(Stub())
    installed.add(replace(EXTENSION, hooks=RAISES))
    installed.add(replace(EXTENSION, distribution="goodops", name="goodops"))
    loaded = load_platform(select_platform(installed.table()))
    assert [extension.name for extension in loaded.selection.extensions] == ["goodops"]
    assert {r.name: r.verdict for r in loaded.table.rows} == {
        "fake": Verdict.CHOSEN,
        "fakeops": Verdict.BROKEN,
        "goodops": Verdict.CHOSEN,
    }
    assert "left out: fakeops 0.1" in caplog.text


MODEL = """
from dougong.contracts import ModelRegistration
@hookimpl
def dougong_register_models(): return [ModelRegistration("FakeLM", target="{where}:FakeLM")]
"""


def test_a_collision_between_two_wheels_stops_the_start(installed: Installed) -> None:
    installed.add(Stub(hooks=MODEL.format(where="one")))
    installed.add(replace(EXTENSION, hooks=MODEL.format(where="two")))
    with pytest.raises(PluginError, match=r"'FakeLM' is claimed by fakeplat 0\.1 and by fakeops"):
        load_platform(select_platform(installed.table()))


def test_a_platform_that_was_not_chosen_is_not_imported(installed: Installed) -> None:
    installed.add(Stub())
    installed.add(Stub(distribution="other", name="other", hooks=RAISES, platform_body=RAISES))
    loaded = load_platform(select_platform(installed.table(), "fake"))
    assert {r.name: r.verdict for r in loaded.table.rows}["other"] is Verdict.AVAILABLE


def test_a_class_named_by_a_platform_is_checked_against_its_contract() -> None:
    plugin = row("acme")
    found = load_class("dougong.reference:ReferenceWorker", Worker, plugin)
    assert found.__name__ == "ReferenceWorker"
    with pytest.raises(ContractError, match="does not derive from"):
        load_class("dougong.reference:ReferenceWorker", Communicator, plugin)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("no.such.module:X", "ModuleNotFoundError"),
        ("dougong.errors:Nothing", "AttributeError"),
        ("dougong.errors", "write it as 'package.module:Class'"),
    ],
)
def test_an_import_string_that_leads_nowhere_is_the_plugins_fault(target: str, told: str) -> None:
    with pytest.raises(PluginError, match=told):
        import_object(target, row("acme"))


def test_an_extension_is_no_platform() -> None:
    with pytest.raises(PluginError, match="brings no platform"):
        instantiate(row("ops", platform=None))


def _with_runtime(body: str) -> Stub:
    head, _, _ = PLATFORM.partition("        from {package}.runtime import")
    return Stub(platform_body=f"{head}        {body}\n")


def test_loading_makes_no_runtime_and_the_check_gives_the_one_there_is(
    installed: Installed,
) -> None:
    installed.add(Stub())
    loaded = load_platform(select_platform(installed.table()))
    assert "_runtime" not in vars(loaded.platform)
    assert check_runtime(loaded.platform, loaded.selection.row) is loaded.platform.runtime


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return object()", "does not derive from dougong.contracts.device.DeviceRuntime"),
        (
            "from dougong.testing.null_platform import NullRuntime\n"
            '        return type("Mine", (NullRuntime,), {{"__module__": __name__, '
            '"device_counts": lambda self: 1, "synchronize": lambda self, index: None}})()',
            "did you mean 'device_count'?",
        ),
        ("raise ImportError('fakert')", "the runtime of platform fake cannot be made: ImportError"),
    ],
)
def test_a_runtime_that_does_not_fit_is_refused_naming_its_wheel(
    installed: Installed, body: str, told: str
) -> None:
    installed.add(_with_runtime(body))
    loaded = load_platform(select_platform(installed.table()))
    with pytest.raises(PluginError) as caught:
        check_runtime(loaded.platform, loaded.selection.row)
    assert told in str(caught.value)
    assert "fakeplat 0.1" in str(caught.value)
    assert caught.value.plugin == "fake"


def test_the_runtimes_of_the_core_fit_their_contract() -> None:
    for platform in (CpuPlatform(), NullPlatform()):
        assert check_runtime(platform, row(platform.name)) is platform.runtime
