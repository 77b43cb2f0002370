"""Capabilities and choices, as the planning parent asks for them."""

from __future__ import annotations

import pytest
from dougong.contracts import ConfigView, DeviceError, KernelReport
from dougong.testing.queries import query_problems

from dougong_sim import device as device_package
from dougong_sim.device import LoadError, control
from dougong_sim.device import torch_module as sim
from dougong_sim.platform import SimPlatform


def test_questions_have_no_side_effects_and_the_same_answer_every_time() -> None:
    assert query_problems(SimPlatform(), 0, ["sim1", "no such family"]) == []


def test_an_unknown_family_gets_what_holds_for_all_and_is_told_so() -> None:
    known, unknown = SimPlatform().claims("sim1"), SimPlatform().claims("sim9")
    assert (known.is_generic, unknown.is_generic) == (False, True)
    assert unknown.arch == "sim9"
    assert set(unknown.dtypes) < set(known.dtypes)
    assert unknown.features < known.features
    assert not unknown.graph_capture


def test_every_family_that_is_listed_is_one_that_is_known() -> None:
    families = SimPlatform().families()
    assert "sim1" in families
    assert not any(SimPlatform().claims(family).is_generic for family in families)


def test_a_simulation_says_that_it_is_one_whatever_the_family() -> None:
    for arch in ("sim1", "sim9"):
        assert "device.double" in SimPlatform().claims(arch).features


def test_facts_are_those_of_the_device_behind_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIM_VISIBLE_DEVICES", "3")
    facts = SimPlatform().facts(0)
    assert (facts.device_index, facts.arch, facts.memory_total_bytes) == (0, "sim1", 1 << 30)
    with pytest.raises(DeviceError, match="sim has 1 devices here; index 1 was asked for"):
        SimPlatform().facts(1)


def test_facts_open_no_device() -> None:
    SimPlatform().facts(7)
    assert not control.has_context(7)


def test_the_probe_and_the_runtime_name_one_device_alike() -> None:
    platform = SimPlatform()
    facts = platform.facts(2)
    assert platform.runtime.device_name(2) == facts.name
    assert platform.runtime.device_uuid(2) == "SIM-00000002"
    assert platform.runtime.memory_info(2).total_bytes == facts.memory_total_bytes
    assert sim.device_count() == platform.runtime.device_count() == 8


def test_values_are_proposed_where_the_user_gave_none() -> None:
    changes = SimPlatform().check_and_update_config(ConfigView(model="m", max_num_seqs=5))
    assert {change.field: change.value for change in changes} == {
        "max_num_batched_tokens": 128,
        "max_model_len": 512,
    }
    assert all(change.reason for change in changes)


def test_no_longer_context_is_proposed_than_the_model_has() -> None:
    view = ConfigView(model="m", hf_config={"max_position_embeddings": 256})
    values = {change.field: change.value for change in SimPlatform().check_and_update_config(view)}
    assert values["max_model_len"] == 256


def test_a_library_that_cannot_be_loaded_is_reported_and_not_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise LoadError("built for another torch")

    assert SimPlatform().import_kernels().loaded[0].startswith("sim-kernels ")
    monkeypatch.setattr(device_package, "load", fail)
    report = SimPlatform().import_kernels()
    assert report == KernelReport(missing={"sim-kernels": "built for another torch"})


def test_a_driver_that_waits_for_each_call_claims_no_calls_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {}
    for mode in ("eager", "lazy", "thread"):
        monkeypatch.setenv("SIM_MODE", mode)
        said[mode] = SimPlatform().claims("sim1").async_execution
    assert said == {"eager": False, "lazy": True, "thread": True}
