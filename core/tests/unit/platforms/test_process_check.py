from __future__ import annotations

import json
import pickle
from concurrent.futures import Future
from dataclasses import asdict, replace

import pytest

from dougong.contracts import Mark, PluginError, Registration, RegistrationKind
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.probing import ProbeCache
from dougong.platforms.process_check import (
    Handover,
    active_overrides,
    check_same_overrides,
    hand_over,
    join_parent,
)
from dougong.platforms.selection import select_platform
from dougong.platforms.table import PluginTable
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub


def _kernel(x: object) -> object:
    return x


def _loaded(installed: Installed, probes: ProbeCache) -> LoadedPlatform:
    installed.add(Stub())
    loaded = load_platform(select_platform(installed.table(probes=probes), "fake", "0"))
    mark = Mark(kind=RegistrationKind.KERNEL, key="rms_norm", name="fake/norm")
    loaded.hooks.registrations = (
        Registration(mark=mark, target=_kernel, plugin="fake", distribution="fakeplat 0.1"),
    )
    return loaded


def test_overrides_name_contract_plugins_and_registrations(installed: Installed) -> None:
    sentences = active_overrides(_loaded(installed, ProbeCache()))
    assert sentences[0].startswith("contract 1.")
    assert sentences[1] == "plugin fake of fakeplat 0.1"
    assert sentences[2].startswith("kernel rms_norm = fake/norm (")
    assert sentences[2].endswith("test_process_check:_kernel) of fakeplat 0.1")


def test_a_handover_survives_both_ways_into_another_process(installed: Installed) -> None:
    probes = ProbeCache()
    handover = hand_over(_loaded(installed, probes), probes)
    assert (handover.platform, handover.devices, handover.allowed) == ("fake", "0", ("fake",))
    assert "Fake 1" in handover.probes
    assert pickle.loads(pickle.dumps(handover)) == handover
    assert Handover.from_json(json.loads(json.dumps(asdict(handover)))) == handover


def test_a_child_joins_without_asking_a_probe_and_stops_at_a_difference(
    installed: Installed,
) -> None:
    probes = ProbeCache()
    installed.add(Stub(distribution="joined", name="joined"))
    parent = load_platform(
        select_platform(installed.table(probes=probes)),
    )
    handover = replace(hand_over(parent, probes), platform="joined")
    other = installed.points()[0]
    assert other.name == "joined"
    assert join_parent(handover).platform.name == "joined"
    with pytest.raises(PluginError, match="only in the parent: kernel gone"):
        join_parent(replace(handover, overrides=(*handover.overrides, "kernel gone")))


def test_a_handover_does_not_wait_for_plugins_that_are_still_tried(installed: Installed) -> None:
    probes = ProbeCache()
    loaded = _loaded(installed, probes)
    never_done: Future[PluginTable] = Future()
    assert hand_over(replace(loaded, rest=never_done), probes) == hand_over(loaded, probes)


def test_equal_overrides_pass_and_a_difference_is_told_from_both_sides() -> None:
    check_same_overrides(("a", "b"), ("a", "b"))
    with pytest.raises(PluginError) as caught:
        check_same_overrides(("a", "b"), ("a", "c"))
    assert "only in the parent: b" in str(caught.value)
    assert "only in this process: c" in str(caught.value)
    with pytest.raises(PluginError, match="another order"):
        check_same_overrides(("a", "b"), ("b", "a"))
