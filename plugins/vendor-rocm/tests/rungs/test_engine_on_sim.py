"""Engines on the simulated device, with the vendor's kernels by references behind their schemas.

The runtime below is not the vendor's, so this is no rung: it shows what the plugin does in an
engine, that the host waits for nothing but tokens, and that every call keeps the vendor's limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from dougong import LLM, SamplingParams
from dougong_conformance.ladder import suite_on_double
from dougong_conformance.ladder.installed_double import installed_double
from dougong_conformance.ladder.platform_double import Double
from dougong_sim.device import control

from dougong_rocm import attention_aiter
from tests.double.doubles import AITER, PUBLISHED, TRITON
from tests.references import install
from tests.rungs.checkpoints import prompt_of, write_checkpoint, write_in

OPTIONS: dict[str, Any] = {"max_model_len": 200, "max_num_seqs": 4, "max_num_batched_tokens": 64}
PROMPTS = [prompt_of(length, start) for length, start in ((5, 1), (150, 2), (40, 3), (129, 4))]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
GROWING = [prompt_of(30, start) for start in range(4)]
LONG = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
DRAWN = [
    SamplingParams(max_tokens=8, temperature=0.9, seed=1, ignore_eos=True),
    SamplingParams(max_tokens=8, temperature=1.3, top_k=20, seed=2),
    SamplingParams(max_tokens=8, temperature=0.7, top_p=0.8, seed=3),
    SamplingParams(max_tokens=8, temperature=0.0, min_tokens=6, stop_token_ids=[9, 17]),
]
QUICK = {
    *("attention.block_sizes", "attention.chunked", "attention.padding", "kv.padding_slots"),
    *("attention.sliding_window", "attention.soft_cap", "attention.metadata_waits"),
    *("ops.activations", "ops.fused_add_rms_norm", "ops.rms_norm", "ops.rotary_embedding"),
}
"""Checks of the suite that take a second or less here."""
AITERS = {
    "aiter::rmsnorm2d_fwd_with_add",
    "aiter::rms_norm",
    "aiter::silu_and_mul",
    "aiter::rope_cached_positions_2c_fwd_impl",
    "aiter::reshape_and_cache_flash",
    "aiter::mha_varlen_fwd",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Heads as wide as AITER's rotation takes them."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny"), head_dim=64)


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Dtype → the same model stored in it: AITER reads weights in the dtype of tokens."""
    return {
        dtype: write_in(tmp_path_factory.mktemp(dtype), dtype, head_dim=64)
        for dtype in ("bfloat16", "float16")
    }


def tokens(
    llm: LLM, params: SamplingParams | list[SamplingParams], prompts: Sequence[list[int]] = PROMPTS
) -> list[list[int]]:
    outputs = llm.generate(prompt_token_ids=list(prompts), sampling_params=params)
    return [list(output.outputs[0].token_ids) for output in outputs]


def on_host(
    model: str, dtype: str, params: Any, prompts: Sequence[list[int]] = PROMPTS
) -> list[list[int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUGONG_PLUGINS", "cpu")
        with LLM(model, platform="cpu", dtype=dtype, num_kv_blocks=64, **OPTIONS) as llm:
            return tokens(llm, params, prompts)


@contextmanager
def engine(double: Double, model: str, dtype: str, **options: Any) -> Iterator[LLM]:
    """One double at a time: both have the plugin's name."""
    with (
        installed_double(double) as name,
        LLM(model, platform=name, dtype=dtype, **options, **OPTIONS) as llm,
    ):
        yield llm


def test_with_the_triton_kernels_tokens_equal_the_hosts(tiny: str) -> None:
    """In float32, with too few blocks for all prompts at once."""
    with engine(TRITON, tiny, "float32", num_kv_blocks=13) as llm:
        with control.forbid_implicit_sync():
            greedy, drawn = tokens(llm, GREEDY), tokens(llm, DRAWN)
            preempted = tokens(llm, LONG, GROWING)
        assert llm.stats().scheduler.num_preemptions > 0
        control.clear_counters()
        before = llm.stats().times["num_steps"]
        tokens(llm, GREEDY, PROMPTS[:2])
        counted, num_steps = control.counters(), llm.stats().times["num_steps"] - before
    assert greedy == on_host(tiny, "float32", GREEDY)
    assert drawn == on_host(tiny, "float32", DRAWN)
    assert preempted == on_host(tiny, "float32", LONG, GROWING)
    assert counted["sync:event"] == num_steps
    assert [name for name in counted if "sync:" in name and name != "sync:event"] == []


@contextmanager
def counted_calls(*, without: str = "") -> Iterator[None]:
    """Every kernel that AITER has for this model ran, but one."""
    counted = install.CALLED[-1]
    counted.calls.clear()
    yield
    assert set(counted.calls) == AITERS - {without}, "another way was taken"


def test_with_aiters_kernels_tokens_equal_the_hosts(halves: dict[str, str]) -> None:
    """AITER computes in halves alone, and rounds elsewhere than the host: in float16 this model's
    choices have margins above it."""
    with (
        engine(AITER, halves["float16"], "float16", num_kv_blocks=3) as llm,
        counted_calls(),
        control.forbid_implicit_sync(),
    ):
        found = tokens(llm, GREEDY)
    assert found == on_host(halves["float16"], "float16", GREEDY)


def test_in_bfloat16_each_answer_begins_as_the_hosts(halves: dict[str, str]) -> None:
    """Three bits fewer: later tokens of this model lie within a rounding of one another."""
    with (
        engine(AITER, halves["bfloat16"], "bfloat16", num_kv_blocks=3) as llm,
        counted_calls(),
        control.forbid_implicit_sync(),
    ):
        found = tokens(llm, GREEDY)
    expected = on_host(halves["bfloat16"], "bfloat16", GREEDY)
    assert [one[:2] for one in found] == [one[:2] for one in expected]


def test_the_published_release_runs_by_aiters_triton_kernel(halves: dict[str, str]) -> None:
    """Its compiled attention cannot be built: it is passed over, and blocks become smaller."""
    model = halves["float16"]
    with engine(PUBLISHED, model, "float16", num_kv_blocks=40) as llm:
        (attention,) = llm.plan.attention
        assert attention.assignment.backend == "rocm/aiter-unified"
        assert attention.assignment.request.block_size == 64
        with counted_calls(without="aiter::mha_varlen_fwd"):
            found = tokens(llm, GREEDY)
    assert found == on_host(model, "float16", GREEDY)


def test_a_planted_wrong_window_is_caught(
    halves: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = attention_aiter.AiterAttentionImpl.__init__

    def windowed(self: Any, request: Any, scale: float) -> None:
        make(self, request, scale)
        self._window = 3

    monkeypatch.setattr(attention_aiter.AiterAttentionImpl, "__init__", windowed)
    with engine(AITER, halves["float16"], "float16", num_kv_blocks=4) as llm:
        found = tokens(llm, GREEDY)
    assert found != on_host(halves["float16"], "float16", GREEDY)


@pytest.mark.parametrize(
    ("double", "dtype"), [(TRITON, "float32"), (AITER, "bfloat16")], ids=["triton", "aiter"]
)
def test_the_suites_checks_hold(double: Double, dtype: str) -> None:
    with installed_double(double) as name:
        ends = suite_on_double.judge(name, chosen=QUICK.__contains__, dtypes=(dtype,))
    assert suite_on_double.failures(ends) == ()
    assert {end.id.partition("[")[0] for end in ends} == QUICK


@pytest.mark.extra
@pytest.mark.parametrize("double", [TRITON, AITER], ids=["triton", "aiter"])
def test_all_of_the_suites_checks_hold(double: Double) -> None:
    with installed_double(double) as name:
        ends = suite_on_double.judge(name)
    assert suite_on_double.failures(ends) == ()
