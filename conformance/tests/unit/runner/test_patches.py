"""What counts as a patch: pieces of a table before and after; nothing is really patched here."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from dougong_conformance import local
from dougong_conformance.drivers.patches import Place, _attributes, _suite_modules, changes


class _Base:
    def inherited(self) -> None:
        """As it was."""


class Watched(_Base):
    def own(self) -> None:
        """As it was."""


def _foreign() -> None:
    """Code of a plugin."""


_foreign.__module__ = "dougong_acme.tricks"
HERE = f"{__name__}.Watched"
BEFORE: dict[Place, Any] = {
    ("torch", "softmax"): torch.softmax,
    (HERE, "own"): Watched.own,
    ("kernels of aten::mm", "CPU"): "RegisterCPU.cpp:1",
}


def wrapped(function: Any) -> Any:
    """In torch's own wrapper."""
    made: Any = vars(torch)["_disable_dynamo"]
    return made(function)


def replaced(**after: Any) -> list[str]:
    names = {"softmax": "torch", "own": HERE, "inherited": HERE, "fresh": "torch"}
    changed: dict[Place, Any] = {(names[key], key): value for key, value in after.items()}
    return changes(BEFORE, {**BEFORE, **changed})[0]


def test_nothing_changed_is_no_patch() -> None:
    assert changes(BEFORE, dict(BEFORE)) == ([], [])


def test_another_object_in_the_old_place_is_one() -> None:
    (told,) = replaced(softmax=_foreign)
    assert told.startswith("torch.softmax: ")
    assert told.endswith(" became dougong_acme.tricks._foreign")


def test_a_wrapper_that_pretends_to_be_the_old_one_is_found() -> None:
    def pretender() -> None:
        """Looks like torch's own."""

    pretender.__module__, pretender.__qualname__ = "torch", "softmax"
    pretender.__wrapped__ = torch.softmax  # type: ignore[attr-defined]  # as functools.wraps does
    assert replaced(softmax=pretender)


def test_torch_may_wrap_its_own() -> None:
    assert replaced(softmax=wrapped(torch.softmax)) == []


def test_a_plugins_function_in_torchs_wrapper_is_found() -> None:
    assert replaced(softmax=wrapped(_foreign))


def test_what_is_gone_is_a_patch() -> None:
    after = {place: value for place, value in BEFORE.items() if place[1] != "softmax"}
    assert changes(BEFORE, after)[0][0].endswith("became nothing")


def test_a_new_attribute_is_listed_and_one_that_hides_an_inherited_one_is_a_patch() -> None:
    sys.modules.setdefault(__name__, ModuleType(__name__))
    setattr(sys.modules[__name__], "Watched", Watched)  # noqa: B010 - pytest imports by path
    after = {**BEFORE, ("torch", "fresh"): _foreign, (HERE, "inherited"): _foreign}
    patches, added = changes(BEFORE, after)
    assert added == ["torch.fresh"]
    assert len(patches) == 1
    assert patches[0].startswith(f"{HERE}.inherited: ")


def test_another_kernel_of_the_host_is_a_patch_and_one_of_a_new_device_is_not() -> None:
    mine = {("kernels of aten::mm", "CPU"): "acme.cpp:1"}
    assert changes(BEFORE, {**BEFORE, **mine})[0]
    new = {("kernels of aten::mm", "PrivateUse1"): "acme.cpp:1"}
    assert changes(BEFORE, {**BEFORE, **new}) == ([], [])


def test_the_suite_itself_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"dougong_conformance.local", "dougong_conformance.drivers.patches"} <= {
        *_suite_modules()
    }
    before = dict(_attributes("dougong_conformance.local", local))
    monkeypatch.setattr(local, "as_raised", _foreign)
    (told,) = changes(before, dict(_attributes("dougong_conformance.local", local)))[0]
    assert told.startswith("dougong_conformance.local.as_raised: ")
