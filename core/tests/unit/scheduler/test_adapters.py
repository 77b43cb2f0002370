"""Requests that use adapters: what the worker is told, and what is shared."""

from __future__ import annotations

import pytest

from dougong.errors import RequestError
from dougong.messages import LoRARef
from tests.unit.scheduler.harness import Harness, make_request

PROMPT = list(range(20))
A, AGAIN, B = LoRARef("a", 0, 1), LoRARef("a", 0, 2), LoRARef("b", 1, 3)


def test_the_worker_is_told_each_requests_slot_and_that_others_have_none() -> None:
    harness = Harness()
    for index, lora in enumerate((None, A, B)):
        harness.scheduler.add(make_request(f"r{index}", PROMPT, lora=lora))
    step = harness.scheduler.schedule()
    assert step is not None
    assert [new.lora_slot for new in step.scheduled_new_reqs] == [-1, 0, 1]


def test_equal_prompts_share_blocks_with_their_own_adapter_alone() -> None:
    harness = Harness()
    cached = []
    for index, lora in enumerate((None, A, B, AGAIN, A, None)):
        harness.add(make_request(f"r{index}", PROMPT, lora=lora))
        harness.run()
        cached.append(harness.answers[f"r{index}"].deltas[0].num_cached_tokens)
    assert cached == [0, 0, 0, 0, 16, 16]


def test_an_adapter_is_in_use_until_its_last_request_ends() -> None:
    harness = Harness()
    for index in range(2):
        harness.add(make_request(f"r{index}", PROMPT, lora=A))
    assert harness.scheduler.num_using(A) == 2
    assert harness.scheduler.num_using(B) == 0
    harness.abort("r0")
    assert harness.scheduler.num_using(A) == 1
    harness.run()
    assert harness.scheduler.num_using(A) == 0


def test_a_fork_with_another_adapter_is_refused() -> None:
    harness = Harness()
    harness.add(make_request("parent", PROMPT, lora=A))
    harness.scheduler.add(make_request("same", PROMPT, lora=A, fork_of="parent"))
    with pytest.raises(RequestError, match="another prompt or adapter") as caught:
        harness.scheduler.add(make_request("other", PROMPT, lora=B, fork_of="parent"))
    assert caught.value.field == "fork_of"
