from __future__ import annotations

import pytest

from tests.unit.scheduler.harness import Harness, make_request


def cached_tokens(harness: Harness, name: str) -> int:
    return harness.answers[name].deltas[0].num_cached_tokens


@pytest.mark.parametrize("num_tokens", [15, 16, 17, 31, 32, 33, 64])
def test_a_warm_prompt_reuses_all_full_blocks_but_the_last_token(num_tokens: int) -> None:
    harness = Harness(block_size=16)
    prompt = list(range(num_tokens))
    for name in ("cold", "warm", "warmer"):
        harness.add(make_request(name, prompt, max_tokens=32))
        harness.run()
    assert cached_tokens(harness, "cold") == 0
    for name in ("warm", "warmer"):
        assert cached_tokens(harness, name) == (num_tokens - 1) // 16 * 16
        assert harness.answers[name].tokens == harness.answers["cold"].tokens


def test_only_the_first_delta_reports_cached_tokens() -> None:
    harness = Harness()
    for name in ("cold", "warm"):
        harness.add(make_request(name, list(range(9)), max_tokens=6))
        harness.run()
    assert [delta.num_cached_tokens for delta in harness.answers["warm"].deltas] == [
        8,
        0,
        0,
        0,
        0,
        0,
    ]


def test_generated_tokens_serve_the_next_turn() -> None:
    harness = Harness(block_size=4)
    harness.add(make_request("turn", list(range(6)), max_tokens=7))
    harness.run()
    dialogue = [*range(6), *harness.answers["turn"].tokens, 77, 78]
    harness.add(make_request("next turn", dialogue, max_tokens=2))
    harness.run()
    assert cached_tokens(harness, "next turn") == 12  # of 13; the last one was never fed back


def test_a_different_beginning_shares_nothing() -> None:
    harness = Harness(block_size=4)
    harness.add(make_request("a", [1, *range(20)]))
    harness.run()
    harness.add(make_request("b", [2, *range(20)]))
    harness.run()
    assert cached_tokens(harness, "b") == 0


def test_nothing_is_reused_with_the_cache_off() -> None:
    harness = Harness(caching=False)
    for name in ("cold", "again"):
        harness.add(make_request(name, list(range(20))))
        harness.run()
    assert cached_tokens(harness, "again") == 0
    assert harness.scheduler.stats().kv_cache.num_cached_blocks == 0


def test_a_running_request_shares_what_it_has_computed() -> None:
    harness = Harness(budget=8)
    prompt = list(range(30))
    harness.add(make_request("first", prompt, max_tokens=20))
    for _ in range(4):
        harness.step()
    harness.add(make_request("second", prompt, max_tokens=2))
    harness.run()
    assert cached_tokens(harness, "second") == 28


def test_hits_and_evictions_are_counted() -> None:
    harness = Harness(block_size=4, num_blocks=6)
    for number in range(4):
        harness.add(
            make_request(f"r{number}", list(range(number % 2, 9 + number % 2)), max_tokens=1)
        )
        harness.run()
    usage = harness.scheduler.stats().kv_cache
    assert usage.num_queried_tokens == 36
    assert usage.num_hit_tokens == 16
    harness.add(make_request("large", 23, max_tokens=1))
    harness.run()
    assert harness.scheduler.stats().kv_cache.num_evictions > 0
