"""Layers with and without a window: a block table each, whatever the blocks of the other hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dougong.attention import Attention
from dougong.contracts import SchedulerOutput
from dougong.contracts.registration import Registration, model_mark
from dougong.models.llama import LlamaForCausalLM
from dougong.reference import ReferenceWorker
from tests.support.reference_worker import bring_up, go_on, make_worker, plan_for, start
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

PROMPT = [5, 90, 17, 33, 200, 64, 3, 8, 120, 77, 41, 9, 13, 250, 31, 2, 66, 12, 54, 99]


class EverySecondWindowed(LlamaForCausalLM):
    """A Llama whose odd layers see 6 tokens."""

    def __init__(
        self, hf_config: Mapping[str, Any], dtype: torch.dtype, max_model_len: int | None = None
    ) -> None:
        super().__init__(hf_config, dtype, max_model_len)
        for module in self.modules():
            if isinstance(module, Attention) and module.layer_index % 2:
                module.sliding_window = 6


MARKED = (
    Registration(
        mark=model_mark("WindowedForCausalLM"),
        target=EverySecondWindowed,
        plugin="acme",
        distribution="acme 1.0",
    ),
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(architectures=["WindowedForCausalLM"])
    return write_tiny_checkpoint(tmp_path_factory.mktemp("windowed"), config)


def tokens(worker: ReferenceWorker, *blocks: list[int]) -> list[int]:
    """Greedy tokens of the prompt whose blocks are these, per group."""
    first = start(0, ("a", PROMPT, [], len(PROMPT)))
    request = replace(first.scheduled_new_reqs[0], block_ids=blocks)
    steps: list[SchedulerOutput] = [
        replace(first, scheduled_new_reqs=[request]),
        *(go_on(step_id, a=1) for step_id in range(1, 8)),
    ]
    return [worker.execute_model(step).sampled_token_ids[0][0] for step in steps]


def ready(checkpoint: Path) -> ReferenceWorker:
    worker = make_worker(checkpoint, registrations=MARKED)
    bring_up(worker, plan_for(worker))
    return worker


def test_each_group_reads_and_writes_through_its_own_table(checkpoint: Path) -> None:
    worker = ready(checkpoint)
    assert [group.layer_indices for group, _ in worker.get_kv_cache_groups()] == [(0,), (1,)]
    apart = tokens(worker, [3, 7], [9, 1])
    assert apart == tokens(ready(checkpoint), [2, 5], [2, 5])
    assert apart == tokens(ready(checkpoint), [11, 4], [4, 11])


def test_a_window_matters_to_the_tokens(checkpoint: Path) -> None:
    """Else the test above would show nothing of the second group."""
    plain = make_worker(checkpoint, architecture="LlamaForCausalLM")
    plan = plan_for(make_worker(checkpoint, registrations=MARKED))
    kind = replace(plan.attention[0], layer_indices=(0, 1))
    bring_up(plain, replace(plan, attention=(kind,)))
    assert tokens(plain, [3, 7]) != tokens(ready(checkpoint), [3, 7], [9, 1])
