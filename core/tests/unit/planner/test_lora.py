"""Adapters in a plan: who computes them, what they take, what gives way, why there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.config.lora import LoRAConfig
from dougong.config.op_switches import OpSwitches
from dougong.contracts import ConfigError, LoRAAssignment
from dougong.describe import OpCandidate
from dougong.planner import ExecutionPlan, plan
from dougong.planner.compare import differences
from dougong.planner.record import plan_from_json, plan_to_json
from tests.unit.planner.op_harness import kernel, running
from tests.unit.planner.paper import paper_inputs, site

WRAPPER = "acme:Wrapper"
ASKED = LoRAConfig(max_loras=3, max_rank=8, adapters=(("a", "/a"),))
SITES = (
    site("gate_up_act", "model.0.mlp"),
    site("linear", "model.0.mlp.linear"),
    site("silu_and_mul", "model.0.mlp.act"),
    site("qkv_norm_rope", "model.0.rope"),
    site("rotary_embedding", "model.0.rope.rotary"),
    site("linear", "model.0.out"),
)
KERNELS = (
    kernel("gate_up_act", "acme/slot"),
    kernel("linear", "acme/linear"),
    kernel("qkv_norm_rope", "acme/rope"),
)


def planned(
    *ops: OpCandidate,
    lora: LoRAConfig | None = ASKED,
    wrapper: str | None = WRAPPER,
    elements: int = 100,
    switches: OpSwitches | None = None,
    is_strict: bool = False,
) -> ExecutionPlan:
    inputs = paper_inputs(
        needs={"ops": SITES, "adapter_elements": elements},
        candidates={"ops": ops, "lora_wrapper": wrapper},
        switches=switches,
    )
    config = replace(inputs.config, lora=lora)
    return plan(replace(inputs, config=config, is_strict=is_strict))


def test_a_rank_is_told_wrapper_slots_and_rank_and_their_memory_is_counted() -> None:
    made = planned()
    assert made.rank_plan.lora == LoRAAssignment(wrapper=WRAPPER, max_loras=3, max_rank=8)
    assert made.lora.num_bytes == 3 * 8 * 100 * 2
    assert plan_from_json(plan_to_json(made)) == made


def test_slots_leave_less_for_the_kv_cache() -> None:
    without, made = planned(lora=None), planned(elements=10_000_000)
    assert without.kv_cache.num_blocks is not None
    assert made.kv_cache.num_blocks is not None
    lost = (without.kv_cache.num_blocks - made.kv_cache.num_blocks) * made.kv_cache.block_bytes
    assert lost == pytest.approx(made.lora.num_bytes, abs=2 * made.kv_cache.block_bytes)


def test_without_being_asked_for_a_plan_says_so() -> None:
    made = planned(*KERNELS, lora=None)
    assert made.rank_plan.lora is None
    assert made.lora.reason == "not asked for (--enable-lora)"
    assert running(made)["model.0.mlp"] == "acme/slot"
    assert planned(lora=None, wrapper=None).lora.reason.startswith("platform ")


@pytest.mark.parametrize(
    ("wrapper", "elements", "why"),
    [(None, 100, "computes no adapters"), (WRAPPER, 0, "has no projection that takes one")],
)
def test_what_cannot_be_had_is_refused_with_the_reason(
    wrapper: str | None, elements: int, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"--enable-lora was asked for, and .* {why}"):
        planned(wrapper=wrapper, elements=elements)


def test_a_fused_slot_around_a_projection_gives_way_to_its_parts_and_no_other_does() -> None:
    made = planned(*KERNELS)
    assert running(made) == {
        "model.0.mlp": "native",
        "model.0.mlp.linear": "acme/linear",
        "model.0.mlp.act": "native",
        "model.0.rope": "acme/rope",
        "model.0.rope.rotary": "[qkv_norm_rope]",
        "model.0.out": "acme/linear",
    }
    (told,) = made.fallbacks
    assert told.subject == "op gate_up_act"
    assert "adapters add (--enable-lora)" in told.reason
    assert told.cost_hint == "plain torch at 1 of 1 places"


def test_who_insists_on_the_slot_is_refused() -> None:
    wish = OpSwitches(implementations={"gate_up_act": "acme/slot"})
    with pytest.raises(ConfigError, match=r"acme/slot[^$]*adapters add"):
        planned(*KERNELS, switches=wish)


def test_a_plan_with_adapters_is_not_one_without() -> None:
    told = [str(one) for one in differences(planned(lora=None), planned())]
    assert any("adapters" in one and WRAPPER in one for one in told), told
