from __future__ import annotations

import pytest

from dougong.errors import DeviceError, PluginError
from dougong.platforms import device_questions
from dougong.platforms.device_questions import ask_about_device
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.selection import select_platform
from dougong.platforms.short_lived import ChildFailed
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub


@pytest.fixture
def loaded(installed: Installed) -> LoadedPlatform:
    installed.add(Stub())
    return load_platform(select_platform(installed.table(), "fake"))


def ask(loaded: LoadedPlatform) -> object:
    return ask_about_device(loaded, 0, module="x", what="its colour", timeout_s=1.0)


def test_an_answer_is_what_the_child_found(
    loaded: LoadedPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def ask_child(module: str, question: object, timeout_s: float) -> object:
        asked.extend((module, timeout_s))
        return {"found": [3]}

    monkeypatch.setattr(device_questions, "ask_child", ask_child)
    assert ask(loaded) == [3]
    assert asked == ["x", 1.0]


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        ({"device_error": "gone"}, DeviceError, r"^gone \(device=0\)$"),
        ({"refused": "no such thing"}, PluginError, "^no such thing$"),
        ({"raised": "OSError: boom"}, PluginError, r"fakeplat 0\.1: its colour raised OSError: b"),
    ],
)
def test_whose_fault_it_is_comes_back_with_the_answer(
    loaded: LoadedPlatform,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, str],
    kind: type[Exception],
    told: str,
) -> None:
    monkeypatch.setattr(device_questions, "ask_child", lambda *asked: answer)
    with pytest.raises(kind, match=told):
        ask(loaded)


def test_a_child_without_an_answer_is_the_plugins_fault(
    loaded: LoadedPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*asked: object) -> None:
        raise ChildFailed("it gave no answer within 120 s", is_timeout=True)

    monkeypatch.setattr(device_questions, "ask_child", hang)
    with pytest.raises(PluginError, match=r"fakeplat 0\.1: its colour: it gave no answer"):
        ask(loaded)
