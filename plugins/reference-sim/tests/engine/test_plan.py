"""What the core plans with this wheel: everything it registers is used, and nothing falls back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dougong import LLM, SamplingParams
from dougong.contracts import RegistrationKind
from dougong.contracts.registration import marks_of

from dougong_sim import hooks, kernels
from dougong_sim.device import control
from tests.engine.checkpoints import prompt_of
from tests.engine.conftest import OPTIONS


@pytest.fixture(scope="module")
def llm(tiny: str) -> Iterator[LLM]:
    with LLM(tiny, platform="sim", num_kv_blocks=12, strict=True, **OPTIONS) as llm:
        yield llm


def test_every_implementation_is_in_the_plan(llm: LLM) -> None:
    marks = [
        (mark, target)
        for module in (hooks, kernels)
        for target in vars(module).values()
        if getattr(target, "__module__", "") == module.__name__
        for mark in marks_of(target)
        if mark.kind is not RegistrationKind.OP
    ]
    registered = {mark.name or f"sim/{target.__name__}" for mark, target in marks}
    planned = {name for names in llm.plan.implementations().values() for name in names}
    assert planned - {"native"} == registered
    assert llm.plan.unmatched == ()


def test_attention_blocks_and_graphs_are_the_devices(llm: LLM) -> None:
    plan = llm.plan
    assert plan.attention_backends() == {"sim/tiles": 2}
    assert (plan.kv_cache.block_size, plan.kv_cache.reserved_blocks) == (48, 1)
    assert plan.mode.name == "full"
    assert not plan.is_generic


def test_its_proposal_is_told_with_its_name(tiny: str) -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "max_num_seqs"}
    with LLM(tiny, platform="sim", num_kv_blocks=12, enforce_eager=True, **options) as llm:
        (decision,) = [one for one in llm.plan.decisions if one.field == "max_num_seqs"]
    assert (decision.value, decision.author) == (4, "platform sim")


def test_captured_steps_replay_few_launches(llm: LLM) -> None:
    params = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
    control.clear_counters()
    llm.generate(prompt_token_ids=[prompt_of(20), prompt_of(3)], sampling_params=params)
    assert control.counters()["graph_replay"] == 6
    (rank,) = llm.stats().ranks
    assert rank["graphs"]["num_eager_steps"] == 0
