"""L3: engines on the vendor's torch_npu over the double; tokens are the CPU's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dougong import SamplingParams
from dougong_conformance.ladder import own_process
from dougong_conformance.ladder.platform_double import Double

from tests.double import emulation
from tests.doubles import over_runtime
from tests.lane.shown import shows
from tests.rungs.checkpoints import GREEDY_FIXTURE, write_checkpoint
from tests.rungs.engines import DRAWN, GREEDY, TIGHT, engine_on, on_host, tokens

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
NUM_TOKENS = 16
CASES: list[dict[str, Any]] = json.loads(GREEDY_FIXTURE.read_text("utf-8"))["cases"]
VENDOR_OPS = {
    "npu::npu_rms_norm",
    "npu::npu_add_rms_norm",
    "npu::npu_swiglu",
    "npu::npu_rotary_mul",
    "npu::npu_scatter_pa_kv_cache",
    "npu::npu_fused_infer_attention_score",
}


def demo_tokens(double: Double, dtype: str, cases: list[dict[str, Any]]) -> list[list[int]]:
    """Of SmolLM2 on the double."""
    params = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    prompts = [case["prompt_token_ids"] for case in cases]
    with engine_on(double, "demo", dtype=dtype, num_kv_blocks=12) as llm:
        return tokens(llm, params, prompts)


def test_smollm2_in_float32_gives_the_cpus_tokens() -> None:
    with shows("beside", "SmolLM2 in float32 on torch_npu over the double") as said:
        cases = CASES[:6]
        emulation.calls.clear()
        found = demo_tokens(over_runtime("910b", float32=True), "float32", cases)
        assert found == [case["output_token_ids"][:NUM_TOKENS] for case in cases]
        vendor = {op: count for op, count in emulation.calls.items() if not op.startswith("aten")}
        assert set(vendor) >= VENDOR_OPS, "another way was taken"
        said.what = (
            f"SmolLM2-135M in float32 on torch_npu 2.13.0 over the CL double: {len(cases)} greedy "
            f"answers of {NUM_TOKENS} tokens equal those of transformers and of the CPU platform; "
            f"{sum(vendor.values())} calls of {len(vendor)} vendor ops, by references (attention "
            "admits float32 here, as the chip's op does not)"
        )
        said.details = {"vendor_calls": vendor}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_smollm2_in_halves_begins_with_the_cpus_tokens(dtype: str) -> None:
    """Where two tokens are nearly equal halves may choose either, and answers part for good."""
    with shows("beside", f"SmolLM2 in {dtype} on torch_npu over the double") as said:
        cases = CASES[:6]
        found = demo_tokens(over_runtime("910b"), dtype, cases)
        expected = [case["output_token_ids"][:NUM_TOKENS] for case in cases]
        same = sum(
            mine == theirs
            for one, other in zip(found, expected, strict=True)
            for mine, theirs in zip(one, other, strict=True)
        )
        first = sum(one[0] == other[0] for one, other in zip(found, expected, strict=True))
        said.what = (
            f"SmolLM2-135M in {dtype} on torch_npu 2.13.0 over the CL double, by the chip's own "
            f"attention op: {same} of {len(cases) * NUM_TOKENS} greedy tokens are those of float32"
        )
        assert first == len(cases)
        assert same >= len(cases) * NUM_TOKENS * 0.6


def test_chunked_preempted_and_drawn_tokens_are_the_cpus(tmp_path: Path) -> None:
    tiny, double = write_checkpoint(tmp_path), over_runtime("910b", float32=True)
    with engine_on(double, tiny, dtype="float32", num_kv_blocks=TIGHT) as llm:
        greedy, drawn = tokens(llm, GREEDY), tokens(llm, DRAWN)
        assert llm.stats().scheduler.num_preemptions > 0
    assert greedy == on_host(tiny, "float32", GREEDY)
    assert drawn == on_host(tiny, "float32", DRAWN)


def answer_on_310p(model: str) -> tuple[list[list[int]], dict[str, int]]:
    """Tokens of a tiny model, and how often each op of the transformer library ran."""
    emulation.calls.clear()
    with engine_on(over_runtime("310p"), model, dtype="float16", num_kv_blocks=24) as llm:
        found = tokens(llm, GREEDY)
    return found, {op: n for op, n in emulation.calls.items() if op.startswith("atb::")}


def test_a_310p_answers_by_its_own_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: what chip there is torch_npu asks once."""
    with shows("beside", "an engine on a doubled 310P") as said:
        wide = write_checkpoint(tmp_path, head_dim=64)
        monkeypatch.setenv("ASCEND_DOUBLE_SOC", "Ascend310P3")
        found, calls = own_process.call(answer_on_310p, wide)
        monkeypatch.undo()
        expected = on_host(wide, "float16", GREEDY)
        assert [one[0] for one in found] == [one[0] for one in expected]
        assert set(calls) >= {
            "atb::_npu_reshape_and_cache",
            "atb::_npu_paged_attention",
            "atb::_npu_paged_attention_splitfuse_v2",
            "atb::_npu_rotary_embedding",
        }
        same = sum(mine == theirs for mine, theirs in zip(found, expected, strict=True))
        said.what = (
            f"a tiny Llama in float16 on torch_npu 2.13.0 over the CL double as a 310P, by "
            f"{len(calls)} ops of the transformer library: {same} of {len(found)} greedy answers "
            "equal the CPU's"
        )


def test_a_wrong_kernel_changes_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    from dougong_ascend import attention

    monkeypatch.setattr(attention, "_CAUSAL", 4)
    cases = CASES[:2]
    found = demo_tokens(over_runtime("910b", float32=True), "float32", cases)
    assert found != [case["output_token_ids"][:NUM_TOKENS] for case in cases]
