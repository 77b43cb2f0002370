"""Kernels of a stranger's wheel in the place of the core's: no name of the core is assigned to."""

from __future__ import annotations

import pytest

from dougong import LLM, SamplingParams
from dougong.errors import PluginError
from tests.patches.conftest import Outside
from tests.support.greedy import greedy_tokens
from tests.support.stub_plugins import PLATFORM

NUM_LAYERS, NUM_NORMS = 2, 5
NORM = """
from torch.nn import functional as F

from dougong.ops import CustomOp, FusedAddRMSNorm


@CustomOp.register_oot("fused_add_rms_norm")
class OwnNorm(FusedAddRMSNorm):
    def forward_oot(self, x, residual):
        count("norm")
        total = x if residual is None else x + residual
        return F.rms_norm(total, self.weight.shape, self.weight, self.eps), total
"""
KERNELS = """
from torch.nn import functional as F

from dougong.contracts import AtMost, Needs
from dougong.ops import register_kernel


@register_kernel("lm_head", name="ops/head", tokens=AtMost(2))
def head(hidden, weight):
    count("head")
    return (hidden @ weight.T).float()


@register_kernel("linear", name="ops/other_chip", when=Needs(features={"acme.wide"}))
def other_chip(x, weight, bias):
    raise AssertionError("the device does not claim it")
"""
FUSED = """
from dougong.ops import register_kernel


@register_kernel("qkv_norm_rope", name="ops/fused", mutates=("qkv",))
class Fused:
    # Split, norm of each head and rotation in one call, as one kernel of a vendor does them.
    def __init__(self, op):
        self._op = op

    def __call__(self, qkv, positions):
        count("fused")
        return self._op.forward_native(qkv, positions)
"""
SAMPLING = """
import torch

from dougong.ops import register_kernel


@register_kernel("greedy_sample", name="ops/argmax")
def argmax(logits):
    count("greedy")
    return logits.argmax(-1)


@register_kernel("top_k_top_p", name="ops/cut")
def cut(logits, top_k, top_p):
    count("cut")
    kept = torch.full_like(logits, -torch.inf)
    best = logits.argmax(-1, keepdim=True)
    return kept.scatter(1, best, logits.gather(1, best))


@register_kernel("penalties", name="ops/penalties")
def penalties(logits, in_prompt, output_counts, repetition, frequency, presence):
    count("penalties")
    return logits - output_counts * frequency[:, None]


@register_kernel("logprobs", name="ops/logprobs")
def logprobs(logits):
    count("logprobs")
    return logits.log_softmax(-1)
"""
WRONG: dict[str, tuple[str, str]] = {
    "an op that there is not": (
        '@CustomOp.register_oot("rms_norms")\nclass A(RMSNorm):\n    def forward_oot(self, x): ...',
        "did you mean 'rms_norm'",
    ),
    "a class that is not the op's": (
        '@CustomOp.register_oot("linear")\nclass A(RMSNorm):\n    def forward_oot(self, x): ...',
        "Linear",
    ),
    "a signature that is not the op's": (
        '@CustomOp.register_oot("rms_norm")\nclass A(RMSNorm):\n    def forward_oot(self, y, z): 0',
        "it takes (y, z) and is called with (x)",
    ),
    "a kernel of an op that there is not": (
        '@register_kernel("rotary", name="ops/rotary")\ndef a(x): ...',
        "rotary_embedding",
    ),
}


def test_a_class_takes_the_place_of_an_op_wherever_a_model_calls_it(
    outside: Outside, model: str, expected: tuple[int, ...]
) -> None:
    outside.extension(NORM)
    with LLM(model, platform="cpu", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
        assert llm.report.implementations["fused_add_rms_norm"] == {"ops/OwnNorm": NUM_NORMS}
    assert outside.counts()["norm"] > NUM_NORMS


def test_a_kernel_runs_where_its_conditions_hold_and_says_why_not_elsewhere(
    outside: Outside, model: str, expected: tuple[int, ...]
) -> None:
    outside.platform(PLATFORM, KERNELS)
    with LLM(model, platform="acme", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
        plan = llm.plan
    assert outside.counts()["head"] > 0
    told = {one.name: one.reason for op in plan.ops for one in op.passed_over}
    assert told["ops/other_chip"] == "needs acme.wide, which this device does not claim"


def test_split_norm_and_rotation_of_every_layer_are_one_call(
    outside: Outside, model: str, expected: tuple[int, ...]
) -> None:
    outside.extension(FUSED)
    with LLM(model, platform="cpu", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
        ran = llm.report.implementations
    assert ran["qkv_norm_rope"] == {"ops/fused": NUM_LAYERS}
    assert "rotary_embedding" not in ran, "its work is done inside the slot"
    assert outside.counts()["fused"] >= NUM_LAYERS


def test_each_piece_of_sampling_is_an_op(
    outside: Outside, model: str, expected: tuple[int, ...]
) -> None:
    outside.platform(PLATFORM, SAMPLING)
    drawn = SamplingParams(
        max_tokens=6, temperature=0.8, top_k=5, frequency_penalty=0.5, logprobs=1, ignore_eos=True
    )
    with LLM(model, platform="acme", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
        llm.generate(prompt_token_ids=[[5, 6, 7]], sampling_params=drawn)
    counts = outside.counts()
    assert all(counts[piece] > 0 for piece in ("greedy", "cut", "penalties", "logprobs"))


@pytest.mark.parametrize("case", WRONG)
def test_a_registration_that_could_never_be_used_is_refused_at_the_start(
    outside: Outside, model: str, case: str
) -> None:
    source, told = WRONG[case]
    outside.extension(f"from dougong.ops import CustomOp, RMSNorm, register_kernel\n\n{source}\n")
    with pytest.raises(PluginError, match=r"dougong-ops 0\.1") as refused:
        LLM(model, platform="cpu", num_kv_blocks=20)
    assert told in str(refused.value)


def test_an_override_that_no_model_meets_is_told(outside: Outside, model: str) -> None:
    outside.extension(NORM.replace("fused_add_rms_norm", "layer_norm").replace(
        "FusedAddRMSNorm", "LayerNorm").replace("x, residual", "x"))  # fmt: skip
    with LLM(model, platform="cpu", num_kv_blocks=20) as llm:
        assert [one.name for one in llm.plan.unmatched] == ["ops/OwnNorm"]


def test_what_holds_for_some_chips_is_a_claim_and_no_question_about_the_vendor(
    outside: Outside, model: str, expected: tuple[int, ...]
) -> None:
    old = 'raise AssertionError("the device does not claim it")'
    kernel = KERNELS.replace(old, 'count("wide"); return F.linear(x, weight, bias)')
    body = PLATFORM.replace("arch=arch,", 'arch=arch, features=frozenset({{"acme.wide"}}),')
    outside.platform(body, kernel)
    with LLM(model, platform="acme", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
    assert outside.counts()["wide"] > 0
