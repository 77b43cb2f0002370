from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from dougong.contracts import Available, DeviceInfo, NotHere
from dougong.platforms.probing import Answer, Broken, ProbeCache, caught

DEVICE = DeviceInfo(index=0, name="Fake 1", uuid="u0", memory_bytes=8)


def _ask(answer: object, *, is_extension: bool = False) -> Answer:
    return ProbeCache().ask("fake", lambda: answer, is_extension=is_extension)


def _leave() -> object:
    raise SystemExit(4)


def _fail() -> object:
    raise ModuleNotFoundError("No module named 'fakert'")


def test_typed_answers_pass_unchanged() -> None:
    assert _ask(Available((DEVICE,))) == Available((DEVICE,))
    assert _ask(NotHere("no /dev/fake0")) == NotHere("no /dev/fake0")
    assert _ask(Available(()), is_extension=True) == Available(())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (True, "type bool"),
        (None, "Available(devices) or NotHere(reason)"),
        (NotHere("  "), "without a reason"),
        (Available(()), "without a device"),
        (Available((replace(DEVICE, index=1),)), "indices [1]"),
        (Available((DEVICE, replace(DEVICE, index=1))), "one uuid"),
        (Available((replace(DEVICE, memory_bytes="8 GiB"),)), "memory_bytes"),  # type: ignore[arg-type]  # what a vendor may write
    ],
)
def test_any_other_answer_is_broken_and_says_what_is_wrong(answer: object, told: str) -> None:
    found = _ask(answer)
    assert isinstance(found, Broken)
    assert told in found.reason


def test_a_raise_is_broken_with_reason_and_traceback() -> None:
    found = ProbeCache().ask("fake", _fail)
    assert isinstance(found, Broken)
    assert found.reason == "its probe raised ModuleNotFoundError: No module named 'fakert'"
    assert "in _fail" in found.traceback


def test_leaving_the_program_is_broken_and_ctrl_c_is_not() -> None:
    assert isinstance(ProbeCache().ask("fake", _leave), Broken)
    with pytest.raises(KeyboardInterrupt):
        caught(KeyboardInterrupt())


def test_many_threads_ask_a_probe_once() -> None:
    calls = []

    def probe() -> object:
        calls.append(threading.get_ident())
        return Available((DEVICE,))

    cache = ProbeCache()
    threads = [threading.Thread(target=cache.ask, args=("fake", probe)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_child_has_the_parents_answers_of_every_kind() -> None:
    parent = ProbeCache()
    parent.ask("a", lambda: Available((DEVICE,)))
    parent.ask("b", lambda: NotHere("no /dev/b"))
    parent.ask("c", _fail)
    child = ProbeCache.from_json(parent.to_json())
    for key in "abc":
        assert child.ask(key, _leave) == parent.ask(key, _leave)


def test_answers_given_here_outlive_those_of_another_process() -> None:
    here, there = ProbeCache({"a": NotHere("here")}), ProbeCache({"a": NotHere("there")})
    here.adopt(there)
    assert here.ask("a", _leave) == NotHere("here")
