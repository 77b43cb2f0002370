"""Changing a plugin leaves the good one as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dougong.contracts import AtMost, Needs

from dougong_conformance.local import LocalSubject
from dougong_conformance.selftest import made
from dougong_conformance.selftest.changes import (
    around_host,
    around_native,
    backwards,
    with_aten,
    with_claims,
    with_op,
    with_runtime,
)
from dougong_conformance.selftest.plain_attention import NAME, with_plain
from dougong_conformance.selftest.plain_lora import with_lora
from dougong_conformance.session import PluginUnderTest, Session, load_plugin


@pytest.fixture(scope="module")
def cpu() -> PluginUnderTest:
    return load_plugin("cpu")


def run_norm(plugin: PluginUnderTest, **more: Any) -> torch.Tensor:
    answer = LocalSubject(Session(plugin)).call(
        "ops.run",
        key="rms_norm",
        config={"hidden_size": 4, "eps": 1e-6, "dtype": "float32"},
        weights={"weight": torch.ones(4)},
        calls=[[torch.tensor([[1.0, 2.0, 3.0, 4.0]])]],
        dtype="float32",
        **more,
    )
    result: torch.Tensor = answer["calls"][0]["outputs"][0]
    return result


def test_an_op_is_replaced_and_the_good_plugin_keeps_its_own(cpu: PluginUnderTest) -> None:
    good = run_norm(cpu)
    changed = with_op(cpu, "rms_norm", lambda op, x: x * 0)
    assert run_norm(changed).eq(0).all()
    assert torch.equal(
        run_norm(changed, implementation="native"), run_norm(cpu, implementation="native")
    )
    assert torch.equal(run_norm(cpu), good)


def test_an_op_may_have_conditions_and_a_range_of_tokens(cpu: PluginUnderTest) -> None:
    other = with_op(cpu, "rms_norm", lambda op, x: x, when=Needs(hidden_size=8), tokens=AtMost(2))
    choices = LocalSubject(Session(other)).call(
        "ops.choices",
        key="rms_norm",
        config={"hidden_size": 8, "eps": 1e-6, "dtype": "float32"},
        dtype="float32",
    )
    assert choices["holding"] == {"mutant/rms_norm": [1, 2]}
    assert choices["pieces"] == [["mutant/rms_norm", 2], ["native", None]]


@pytest.mark.parametrize("around", [around_native, around_host])
def test_the_plain_form_can_be_called_through(cpu: PluginUnderTest, around: Any) -> None:
    changed = around(cpu, "rms_norm", lambda native, op, x: native(x) * 2)
    assert torch.allclose(run_norm(changed), 2 * run_norm(cpu))


def test_torchs_own_ops_are_changed_inside_inference_mode_alone(cpu: PluginUnderTest) -> None:
    changed = with_aten(cpu, {"rsqrt": lambda good, x: good(x) * 0})
    assert run_norm(changed, implementation="native").eq(0).all()
    assert torch.rsqrt(torch.tensor(4.0)) == 0.5


def test_claims_are_added(cpu: PluginUnderTest) -> None:
    facts = LocalSubject(Session(with_claims(cpu, features=["a.b"], kv_dtypes=("int8",)))).facts
    assert "a.b" in facts.features
    assert facts.claims["kv_dtypes"][-1] == "int8"
    assert facts.dtypes == LocalSubject(Session(cpu)).facts.dtypes


def test_a_runtime_is_changed_where_it_is_asked(cpu: PluginUnderTest) -> None:
    changed = with_runtime(cpu, {"device_name": lambda good: lambda index: "another"})
    assert changed.make_platform().runtime.device_name(0) == "another"
    assert cpu.make_platform().runtime.device_name(0) != "another"


def test_backends_and_wrappers_are_found_by_import_string(cpu: PluginUnderTest) -> None:
    changed = with_lora(with_plain(cpu))
    assert list(Session(changed).backends) == [NAME]
    target = changed.make_platform().get_punica_wrapper()
    assert target is not None
    assert made.find(target).__name__ == "ChangedLoRA"


def test_the_other_way_round() -> None:
    assert backwards(torch.tensor([[1, 2, 3]])).tolist() == [[3, 2, 1]]
