from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from dougong.cli import collective_check
from dougong.cli.collective_check import check_collective, run_rank
from dougong.errors import PluginError
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.probing import PROCESS_PROBES
from dougong.platforms.process_check import hand_over
from dougong.platforms.selection import select_platform
from dougong.platforms.short_lived import ChildFailed
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import ONE_DEVICE, PLATFORM, Stub

# A communicator that joins nobody and hands every tensor back.
IDLE = """
    def get_device_communicator_cls(self): return "{package}.platform:Idle"


from dougong.reference import TorchCommunicator


class Idle(TorchCommunicator):
    def __init__(self, options, device):
        self.options, self.device = options, device

    def all_reduce(self, tensor): return tensor
    def destroy(self): pass
"""
TWO_DEVICES = (
    "return Available(tuple(DeviceInfo(index=n, name='Fake 1', arch='fake1') for n in range(2)))"
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


def _loaded(
    installed: Installed, body: str = PLATFORM, probe: str = f"return {ONE_DEVICE}"
) -> LoadedPlatform:
    installed.add(Stub(platform_body=body, probe=probe))
    return load_platform(select_platform(installed.table(probes=PROCESS_PROBES)))


def test_two_ranks_add_up_what_both_give(installed: Installed, tmp_path: Path) -> None:
    loaded = _loaded(installed)
    with ThreadPoolExecutor(2) as pool:
        errors = pool.map(lambda rank: run_rank(loaded, (0, 0), rank, tmp_path), range(2))
        assert list(errors) == [0.0, 0.0]


def test_a_communicator_that_does_nothing_is_found_by_a_second_rank(
    installed: Installed, tmp_path: Path
) -> None:
    loaded = _loaded(installed, PLATFORM + IDLE)
    assert run_rank(loaded, (0, 0), 0, tmp_path) > 0.5
    assert run_rank(loaded, (0,), 0, tmp_path) == 0.0


def test_the_deadlines_are_the_communicators_own(installed: Installed, tmp_path: Path) -> None:
    """One that its vendor's library would outlast is refused by some."""
    noting = IDLE.replace(
        "self.options, self.device = options, device",
        "assert not options.deadlines_s; self.options, self.device = options, device",
    )
    assert run_rank(_loaded(installed, PLATFORM + noting), (0,), 0, tmp_path) == 0.0


def test_a_communicator_that_cannot_be_made_is_a_failure_with_its_reason(
    installed: Installed, tmp_path: Path
) -> None:
    method = '    def get_device_communicator_cls(self): return "nobody.imports:This"\n'
    handover = asdict(hand_over(_loaded(installed, f"{PLATFORM}\n{method}")))
    question = {"handover": handover, "devices": [0], "rank": 0, "folder": str(tmp_path)}
    answer = collective_check._answer(question)
    assert isinstance(answer, dict)
    assert "nobody.imports:This cannot be imported" in answer["failure"]


def test_one_reason_of_both_ranks_is_told_once(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"failure": "no fabric"}
    monkeypatch.setattr(collective_check, "ask_child", lambda *args, **more: answer)
    with pytest.raises(ChildFailed) as caught:
        check_collective(_loaded(installed), 0)
    assert caught.value.reason == "no fabric"


def test_each_rank_gets_the_environment_that_the_communicator_declares(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = """
    @classmethod
    def rank_environment(cls, rank, size):
        return {{"FABRIC": "%d of %d" % (rank, size)}}
"""
    given = []

    def ask(*args: object, environment: dict[str, str]) -> dict[str, object]:
        given.append(environment)
        return {"failure": "", "error": 0.0}

    monkeypatch.setattr(collective_check, "ask_child", ask)
    check_collective(_loaded(installed, PLATFORM + IDLE + declared), 0)
    assert sorted(one["FABRIC"] for one in given) == ["0 of 2", "1 of 2"]


def test_a_communicator_that_does_not_fit_is_refused(installed: Installed, tmp_path: Path) -> None:
    method = '    def get_device_communicator_cls(self): return "builtins:object"\n'
    loaded = _loaded(installed, f"{PLATFORM}\n{method}")
    with pytest.raises(PluginError, match=r"does not derive from .*Communicator"):
        run_rank(loaded, (0,), 0, tmp_path)


def _asked(monkeypatch: pytest.MonkeyPatch, *, shared_fails: bool = False) -> list[tuple[int, ...]]:
    asked: list[tuple[int, ...]] = []

    def ask(loaded: LoadedPlatform, devices: Sequence[int]) -> float:
        asked.append(tuple(devices))
        if shared_fails and len(devices) > len(set(devices)):
            raise ChildFailed("a device may be used once")
        return 0.0

    monkeypatch.setattr(collective_check, "_ask_ranks", ask)
    return asked


def test_where_there_are_two_devices_each_rank_has_its_own(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _asked(monkeypatch)
    loaded = _loaded(installed, probe=TWO_DEVICES)
    assert check_collective(loaded, 1) == (0.0, "2 ranks on devices 1 and 0")
    assert asked == [(1, 0)]


def test_where_one_device_takes_one_rank_only_the_result_says_so(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _asked(monkeypatch, shared_fails=True)
    error, detail = check_collective(_loaded(installed), 0)
    assert error == 0.0
    assert detail.startswith("1 rank, which proves little")
    assert "a device may be used once" in detail
    assert asked == [(0, 0), (0,)]
