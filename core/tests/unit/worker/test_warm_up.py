"""Warm-up steps: one per piece of the plan that a step can reach."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from dougong.attention import Attention
from dougong.contracts import OpPiece, RankPlan
from dougong.contracts.rank_plan import NATIVE
from dougong.ops import GateUpAct, RMSNorm
from dougong.worker.warm_up import StepLimits, warm_up_sampling, warm_up_steps
from tests.support.plans import plan_for_model

LIMITS = StepLimits(
    max_num_tokens=100, max_num_seqs=4, max_model_len=32, num_blocks=50, block_size=16
)


def plan(*pieces: OpPiece, key: str = "rms_norm", decode_backend: str | None = None) -> RankPlan:
    model = nn.ModuleList([RMSNorm(8, 1e-6, torch.float32), Attention(0, 4, 2, 16, 0.25)])
    return plan_for_model(
        model, implementations={key: pieces or NATIVE}, decode_backend=decode_backend
    )


def steps(rank_plan: RankPlan, **limits: int) -> list[list[int]]:
    """Where each step calls what it should."""
    return list(warm_up_steps(rank_plan, replace(LIMITS, **limits), lambda *piece: True))


def fused_plan(slot: tuple[OpPiece, ...], inner: tuple[OpPiece, ...]) -> RankPlan:
    model = nn.ModuleDict({"mlp": GateUpAct(8, 8, "silu", False, torch.float32)})
    return plan_for_model(model, implementations={"gate_up_act": slot, "silu_and_mul": inner})


def test_one_step_with_prefill_and_decode_is_enough_where_the_token_count_does_not_matter() -> None:
    assert steps(plan()) == [[2, 1]]
    assert steps(plan(OpPiece("acme/norm"))) == [[2, 1]]
    assert steps(plan(decode_backend="reference/torch")) == [[2, 1]]


@pytest.mark.parametrize(
    "limits",
    [{"max_num_seqs": 1}, {"max_num_tokens": 2}, {"num_blocks": 1}],
)
def test_prefill_and_decode_come_apart_where_no_step_holds_both(limits: dict[str, int]) -> None:
    assert steps(plan(), **limits) == [[1], [2]]


@pytest.mark.parametrize("limits", [{"max_num_tokens": 1}, {"max_model_len": 2}])
def test_where_no_prompt_is_longer_than_one_token_decode_is_all(limits: dict[str, int]) -> None:
    assert steps(plan(), **limits) == [[1]]


def test_every_piece_with_a_kernel_is_reached_by_its_first_token_count() -> None:
    pieces = (OpPiece("acme/a", 4), OpPiece("acme/b", 9), OpPiece("acme/c"))
    assert steps(plan(*pieces)) == [[2, 1], [2, 1, 1, 1], [3, 3, 2, 2]]


def test_a_piece_for_one_or_two_tokens_is_reached_too() -> None:
    for bound, rest in ((1, [[1, 1]]), (2, [[1, 1, 1]])):
        assert steps(plan(OpPiece("acme/a", bound), OpPiece("acme/b"))) == [[1], [2], *rest]


def test_what_native_does_needs_no_proof() -> None:
    pieces = (OpPiece("acme/a", 4), OpPiece(NATIVE, 9), OpPiece("acme/c"))
    assert steps(plan(*pieces)) == [[2, 1], [3, 3, 2, 2]]
    assert steps(plan(OpPiece("acme/a", 4), OpPiece(NATIVE))) == [[2, 1]]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_num_tokens": 19}, [[2, 1]]),
        ({"max_num_tokens": 20}, [[2, 1], [5, 5, 5, 5]]),
        ({"max_num_seqs": 1}, [[1], [2], [20]]),
        ({"max_num_seqs": 1, "max_model_len": 20}, [[1], [2]]),
        ({"num_blocks": 2}, [[2, 1], [20]]),  # four sequences would take four blocks
        ({"num_blocks": 1}, [[1], [2]]),
    ],
)
def test_a_piece_that_no_step_reaches_is_left_out(
    limits: dict[str, int], expected: list[list[int]]
) -> None:
    assert steps(plan(OpPiece("acme/a", 19), OpPiece("acme/b")), **limits) == expected


def test_the_whole_sampler_runs_only_where_a_part_of_it_has_a_kernel() -> None:
    assert warm_up_sampling(plan(OpPiece("acme/norm"))).is_greedy
    assert warm_up_sampling(plan(OpPiece("acme/argmax"), key="greedy_sample")).is_greedy
    for key in ("top_k_top_p", "logprobs", "penalties"):
        params = warm_up_sampling(plan(OpPiece("acme/part"), key=key))
        assert not params.is_greedy
        assert params.logprobs is not None


FEW = OpPiece("acme/few", 8)
REST = OpPiece(NATIVE)
INNER = "mlp.act"


def test_steps_go_on_until_what_a_slot_hides_was_called() -> None:
    rank_plan = fused_plan((FEW, REST), (OpPiece("acme/in"),))
    called: set[str] = {"mlp"}
    given = []
    for lengths in warm_up_steps(rank_plan, LIMITS, lambda path, index: path in called):
        given.append(lengths)
        if sum(lengths) > 8:
            called.add(INNER)
    assert given == [[2, 1], [3, 2, 2, 2]]


def test_what_no_step_calls_costs_no_more_than_one_step_for_each_way_to_reach_it() -> None:
    hidden = fused_plan((FEW, REST), (OpPiece("acme/a", 8), OpPiece("acme/b", 12), REST))
    found = warm_up_steps(hidden, LIMITS, lambda path, index: path == "mlp")
    assert list(found) == [[2, 1], [3, 2, 2, 2]]
    too_long = warm_up_steps(
        fused_plan((FEW, REST), (OpPiece("acme/in"),)),
        replace(LIMITS, max_num_tokens=8),
        lambda path, index: path == "mlp",
    )
    assert list(too_long) == [[2, 1]]
