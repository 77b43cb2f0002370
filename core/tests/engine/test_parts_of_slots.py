"""Fused slots on the CPU platform: the slot's kernel runs, or those of its parts."""

from __future__ import annotations

import pytest

from dougong import LLM
from tests.support.greedy import greedy_tokens
from tests.support.tiny_models import write_tiny_checkpoint

NUM_LAYERS, NUM_NORMS = 2, 5
INSIDE = {"rms_norm": "fused_add_rms_norm", "silu_and_mul": "gate_up_act"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


def test_with_a_kernel_the_slot_does_the_work_of_its_parts(model: str) -> None:
    with LLM(model, num_kv_blocks=20) as llm:
        ran, plan = llm.report.implementations, llm.plan
    assert ran["fused_add_rms_norm"] == {"cpu/fused_add_rms_norm": NUM_NORMS}
    assert ran["gate_up_act"] == {"cpu/packed_gate_up_act": NUM_LAYERS}
    assert ran["linear"] == {"cpu/packed_linear": 3 * NUM_LAYERS}
    assert ran["qkv_norm_rope"] == {"native": NUM_LAYERS}  # a split, then what is inside
    assert ran["rotary_embedding"] == {"cpu/rotary_embedding": NUM_LAYERS}
    inside = {one.key: one.inside for one in plan.ops if one.inside}
    assert inside == INSIDE | {"linear": "gate_up_act"}
    assert not INSIDE.keys() & ran.keys()


def test_without_one_the_parts_own_kernels_run_and_the_answer_is_the_same(model: str) -> None:
    with LLM(model, num_kv_blocks=20) as llm:
        expected = greedy_tokens(llm)
    switches = "-fused_add_rms_norm,-gate_up_act"
    with LLM(model, num_kv_blocks=20, custom_ops=switches) as llm:
        assert greedy_tokens(llm) == expected
        ran = llm.report.implementations
    assert ran["fused_add_rms_norm"] == {"native": NUM_NORMS}
    assert ran["rms_norm"] == {"cpu/rms_norm": NUM_NORMS}
    assert ran["linear"] == {"cpu/packed_linear": 4 * NUM_LAYERS}
    assert ran["silu_and_mul"] == {"native": NUM_LAYERS}
