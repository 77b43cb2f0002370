from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import pytest

from dougong.contracts import Claims, DeviceRuntime, Platform, Worker
from dougong.errors import ContractError
from dougong.platforms.contract_check import check_class, problems_of
from dougong.reference import ReferenceWorker, TorchDeviceRuntime


class Good(Platform):
    name = "good"
    device_type = "fake"
    dispatch_key = "PrivateUse1"
    dist_backend = ""
    visible_devices_env = ""

    def claims(self, arch):  # type: ignore[no-untyped-def]  # as vendors write it
        return Claims(arch=arch, dtypes=("float32",))

    def facts(self, device_index):  # type: ignore[no-untyped-def]  # as vendors write it
        raise AssertionError

    @cached_property
    def runtime(self):  # type: ignore[no-untyped-def]  # as vendors write it
        raise AssertionError

    def _helper(self) -> None: ...


def _made(base: type, **members: Any) -> type:
    return type("Made", (base,), {"__module__": __name__, **members})


def _problems(contract: type, base: type, **members: Any) -> str:
    return "\n".join(problems_of(_made(base, **members), contract))


def test_a_platform_that_fits_has_no_problem() -> None:
    assert problems_of(Good, Platform) == ()
    check_class(Good, Platform, subject="good")


def test_every_problem_stands_in_one_message() -> None:
    found = _made(
        Platform,
        name="",
        device_type=3,
        dispatch_key="X",
        dist_backend="",
        clams=lambda self, arch: None,
        get_worker_cls=lambda self, which: "",
        get_grph_runner_cls=lambda self: None,
    )
    with pytest.raises(ContractError) as caught:
        check_class(found, Platform, subject="made.platform:Made of made 1.0", plugin="made")
    text = str(caught.value)
    for part in (
        "made.platform:Made of made 1.0",
        "required method claims(arch",
        "is 'clams' meant to be it?",
        "required method facts(device_index",
        "required property runtime is missing",
        "'name' is empty",
        "'device_type' is 3",
        "'visible_devices_env' is missing",
        "Made.clams is not in Platform, so nobody calls it: did you mean 'claims'?",
        "did you mean 'get_graph_runner_cls'?",
        "Made.get_worker_cls(which) must take ()",
    ):
        assert part in text
    assert caught.value.plugin == "made"


def test_private_names_are_free_and_public_ones_say_how_to_keep_a_helper() -> None:
    assert _problems(Platform, Good, _anything=lambda self: None) == ""
    assert "Start a private helper with '_'" in _problems(Platform, Good, tune=lambda self: None)
    assert "Made.table is not in Platform" in _problems(Platform, Good, table={})


def test_a_problem_in_a_base_of_the_same_package_is_found() -> None:
    base = _made(Good, clear_caches=lambda self: None)
    assert "clear_caches" in _problems(Platform, base)


def test_a_misspelt_attribute_is_found() -> None:
    assert "did you mean 'device_type'?" in _problems(Platform, Good, device_typ="fake")


def test_a_platform_must_be_made_without_arguments() -> None:
    def needs(self: object, index: int) -> None: ...

    assert "made without arguments" in _problems(Platform, Good, __init__=needs)
    assert _problems(Platform, Good, __init__=lambda self, index=0: None) == ""


@pytest.mark.parametrize("found", [3, "text", int])
def test_what_is_no_such_class_is_refused(found: object) -> None:
    assert len(problems_of(found, Platform)) == 1


def test_the_published_defaults_fit_their_contracts() -> None:
    assert problems_of(TorchDeviceRuntime, DeviceRuntime) == ()
    assert problems_of(ReferenceWorker, Worker) == ()


def test_a_vendor_may_override_what_a_published_default_adds() -> None:
    assert _problems(DeviceRuntime, TorchDeviceRuntime, module=property(lambda self: None)) == ""
    assert "is not in DeviceRuntime" in _problems(
        DeviceRuntime, TorchDeviceRuntime, modul=property(lambda self: None)
    )


def test_a_constructor_takes_what_the_core_gives_it() -> None:
    def needs(self: object, context: object, extra: int) -> None: ...

    assert "'extra'" in _problems(Worker, ReferenceWorker, __init__=needs)


def test_what_the_plugin_makes_itself_may_be_made_in_any_way() -> None:
    assert _problems(DeviceRuntime, TorchDeviceRuntime, __init__=lambda self, a, b: None) == ""


def test_an_optional_ability_may_be_there_without_being_named() -> None:
    good = {name: lambda self, tag: None for name in ("pool", "release", "restore")}
    assert _problems(DeviceRuntime, TorchDeviceRuntime, **good) == ""
    assert "'tag' is missing" in _problems(
        DeviceRuntime, TorchDeviceRuntime, release=lambda self: None
    )


class Contract(ABC):
    """Made up: one name of it will go."""

    title: ClassVar[str]

    @abstractmethod
    def run(self) -> None:
        """New."""

    def execute(self) -> int:
        """Old."""
        return 0

    @property
    def limits(self) -> Mapping[str, int]:
        """Old, too."""
        return {}


def _deprecate(function: Any) -> None:
    function.deprecated_in = "1.1"
    function.use_instead = "run"


_deprecate(vars(Contract)["execute"])
_deprecate(vars(Contract)["limits"].fget)


class Old(Contract):
    title = "old"

    def run(self) -> None: ...

    def execute(self) -> int:
        return 1

    @property
    def limits(self) -> Mapping[str, int]:
        return {"a": 1}


class New(Contract):
    title = "new"

    def run(self) -> None: ...


def test_a_deprecated_name_warns_its_implementer_by_file_and_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_class(Old, Contract, subject="old")
        check_class(New, Contract, subject="new")
    assert [str(w.message).split(",")[0] for w in caught] == [
        "Old.execute overrides Contract.execute",
        "Old.limits overrides Contract.limits",
    ]
    assert "since contract 1.1" in str(caught[0].message)
    assert "use 'run' instead" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert caught[0].lineno == Old.execute.__code__.co_firstlineno
