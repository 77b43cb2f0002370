"""Long seeded runs under pressure, where the rare meets the rare."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from dougong.errors import RequestError
from tests.unit.scheduler.harness import Harness, make_request

NUM_SEEDS = 24


@dataclass
class Seen:
    """What happened in one run; a run in which nothing happens proves nothing."""

    num_preemptions: int = 0
    num_hit_tokens: int = 0
    num_evictions: int = 0
    num_shared_by_forks: int = 0


def run_at_random(seed: int) -> Seen:
    rng = random.Random(seed)
    seats = rng.choice([2, 4, 7])
    harness = Harness(
        block_size=rng.choice([1, 2, 4]),
        num_blocks=rng.randint(12, 24),
        max_num_seqs=seats,
        budget=seats + rng.choice([0, 1, 10]),
        max_model_len=rng.choice([16, 48]),
        policy=rng.choice(["fcfs", "priority"]),
        threshold=rng.choice([None, 2]),
        caching=rng.random() < 0.5,
        groups=rng.choice([1, 1, 2]),
        reserved=rng.choice([0, 1]),
    )
    for number in range(150):
        act_at_random(rng, harness, f"r{number}")
    harness.run()
    stats = harness.scheduler.stats()
    forks = [name for name, request in harness.requests.items() if request.fork_of]
    return Seen(
        num_preemptions=stats.num_preemptions,
        num_hit_tokens=stats.kv_cache.num_hit_tokens,
        num_evictions=stats.kv_cache.num_evictions,
        num_shared_by_forks=0
        if harness.scheduler.allocator.is_prefix_caching
        else sum(harness.answers[fork].deltas[0].num_cached_tokens for fork in forks),
    )


def act_at_random(rng: random.Random, harness: Harness, name: str) -> None:
    live = list(harness.scheduler.block_tables())
    act = rng.random()
    if live and act < 0.06:
        harness.abort(rng.choice(live))
    elif live and act < 0.1:
        harness.step(lambda: harness.abort(rng.choice(live)))
    elif live and act < 0.2:
        parent = rng.choice(live)
        prompt = harness.requests[parent].prompt_token_ids
        harness.add(make_request(name, prompt, fork_of=parent, max_tokens=rng.randint(1, 20)))
    elif act < 0.5 and len(live) < 12:
        prompt = (*range(rng.choice([0, 4, 9])), rng.randrange(3))
        try:
            harness.add(
                make_request(name, prompt, max_tokens=rng.randint(1, 40), priority=rng.randrange(3))
            )
        except RequestError:
            assert len(prompt) > harness.scheduler.limits.max_prompt_len
    else:
        harness.step()


@pytest.fixture(scope="module")
def seen() -> list[Seen]:
    return [run_at_random(seed) for seed in range(NUM_SEEDS)]


def test_every_request_gets_its_tokens_whatever_happens_around_it(seen: list[Seen]) -> None:
    assert len(seen) == NUM_SEEDS  # the checks are made in the runs themselves


def test_the_runs_reach_what_they_are_meant_to_reach(seen: list[Seen]) -> None:
    assert sum(run.num_preemptions for run in seen) > 100
    assert sum(run.num_hit_tokens for run in seen) > 100
    assert sum(run.num_evictions for run in seen) > 100
    assert sum(run.num_shared_by_forks for run in seen) > 20
