"""Engines on the simulated device, with the vendor's ops by references behind their schemas.

The runtime below is not the vendor's, so this is no rung: it shows what the plugin does in an
engine, that the host waits for nothing but tokens, and that every call keeps the vendor's limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dougong import LLM
from dougong_sim.device import control

from dougong_ascend import attention
from tests.doubles import over_sim
from tests.references import stand_ins
from tests.rungs.checkpoints import write_checkpoint
from tests.rungs.engines import DRAWN, GREEDY, PROMPTS, TIGHT, engine_on, on_host, tokens

FUSED = {
    "npu::npu_rms_norm",
    "npu::npu_swiglu",
    "npu::npu_scatter_pa_kv_cache",
    "npu::npu_fused_infer_attention_score",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def device(tiny: str) -> Iterator[LLM]:
    """In float32, with too few blocks for all prompts at once."""
    double = over_sim("910b", float32=True)
    with engine_on(double, tiny, dtype="float32", num_kv_blocks=TIGHT) as llm:
        yield llm


def test_chunked_preempted_and_mixed_steps_change_no_token(device: LLM, tiny: str) -> None:
    expected = on_host(tiny, "float32", GREEDY)
    stand_ins.made().calls.clear()
    with control.forbid_implicit_sync():
        assert tokens(device, GREEDY) == expected
    assert device.stats().scheduler.num_preemptions > 0
    assert set(stand_ins.made().calls) >= FUSED, "another way was taken"


def test_drawn_tokens_follow_the_seed(device: LLM, tiny: str) -> None:
    expected = on_host(tiny, "float32", DRAWN)
    with control.forbid_implicit_sync():
        assert tokens(device, DRAWN) == expected


def test_a_step_waits_once_and_by_name(device: LLM) -> None:
    control.clear_counters()
    before = device.stats().times["num_steps"]
    tokens(device, GREEDY, PROMPTS[:2])
    counted = control.counters()
    assert counted["sync:event"] == device.stats().times["num_steps"] - before
    assert [name for name in counted if "sync:" in name and name != "sync:event"] == []


@pytest.mark.parametrize(
    ("arch", "dtype", "op"),
    [
        ("910b", "bfloat16", "npu::npu_fused_infer_attention_score"),
        ("a3", "float16", "npu::npu_mrope"),
        ("310p", "float16", "atb::_npu_paged_attention"),
    ],
)
def test_each_family_answers_in_its_own_dtypes(
    tmp_path: Path, arch: str, dtype: str, op: str
) -> None:
    """Halves choose otherwise where two tokens are nearly equal; at the first none are."""
    wide = write_checkpoint(tmp_path, head_dim=32)
    with engine_on(over_sim(arch), wide, dtype=dtype, num_kv_blocks=24) as llm:
        stand_ins.made().calls.clear()
        with control.forbid_implicit_sync():
            found = tokens(llm, GREEDY)
    assert stand_ins.made().calls[op] > 0
    expected = on_host(wide, dtype, GREEDY)
    assert [one[0] for one in found] == [one[0] for one in expected]


def test_lengths_that_are_not_cumulative_are_caught(
    tiny: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the core's first use of the backend, which then is passed over aloud."""
    build = attention.FusedInferBuilder.build

    def not_cumulative(self: Any, common: Any) -> attention.FusedInferStep:
        step = build(self, common)
        counts = [end - start for start, end in pairwise([0, *step.query_ends])]
        return attention.FusedInferStep(
            step.num_tokens, counts, step.seq_lens, step.block_table, step.mask
        )

    monkeypatch.setattr(attention.FusedInferBuilder, "build", not_cumulative)
    with engine_on(over_sim("910b", float32=True), tiny, dtype="float32", num_kv_blocks=TIGHT):
        assert "must be cumulative" in caplog.text


def test_a_forgotten_scale_is_caught(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = attention.FusedInferImpl.__init__

    def unscaled(self: Any, request: Any, scale: float) -> None:
        make(self, request, 1.0)

    monkeypatch.setattr(attention.FusedInferImpl, "__init__", unscaled)
    double = over_sim("910b", float32=True)
    with engine_on(double, tiny, dtype="float32", num_kv_blocks=TIGHT) as llm:
        found = tokens(llm, GREEDY)
    assert found != on_host(tiny, "float32", GREEDY)
