from __future__ import annotations

from dataclasses import replace

from dougong.config.step_size import (
    FEWEST_TOKENS,
    MOST_SEQS,
    SEQS_UNKNOWN_RATE,
    TOKENS_UNKNOWN_RATE,
    StepNumbers,
    choose_max_num_batched_tokens,
    choose_max_num_seqs,
)
from tests.support.made_up_cards import GIB, made_up_model

MODEL = made_up_model()
NUMBERS = StepNumbers(
    free_bytes=20 * GIB,
    element_bytes=2,
    kv_bytes_per_token=MODEL.kv_bytes_per_token(2),
    max_model_len=4096,
    compute_rate=200e12,
    memory_bandwidth=1e12,
)


def test_the_crossing_is_where_reading_and_arithmetic_take_equally_long() -> None:
    crossing = NUMBERS.crossing
    assert crossing is not None
    assert 2 * crossing / 200e12 == 2 / 1e12


def test_the_requests_stop_at_the_crossing() -> None:
    value, reason = choose_max_num_seqs(NUMBERS, MODEL)
    assert value == 200
    assert "compute-bound at 200" in reason


def test_little_memory_bounds_the_requests() -> None:
    value, reason = choose_max_num_seqs(replace(NUMBERS, free_bytes=GIB), MODEL)
    assert value < 200
    assert "KV cache" in reason


def test_a_large_vocabulary_bounds_the_requests() -> None:
    numbers = replace(NUMBERS, free_bytes=GIB, kv_bytes_per_token=1)
    value, reason = choose_max_num_seqs(numbers, made_up_model(vocab_size=1_000_000))
    assert value < 200
    assert "logits" in reason


def test_the_tokens_are_some_crossings_in_a_power_of_two() -> None:
    value, _ = choose_max_num_batched_tokens(NUMBERS, MODEL, 200)
    assert value == 4096


def test_little_memory_bounds_the_tokens() -> None:
    numbers = replace(NUMBERS, free_bytes=100 * 1024**2)
    value, reason = choose_max_num_batched_tokens(numbers, MODEL, 1)
    assert value < 4096
    assert "activations" in reason


def test_a_step_always_has_a_token_for_every_request() -> None:
    value, _ = choose_max_num_batched_tokens(replace(NUMBERS, free_bytes=0), MODEL, 500)
    assert value == 500


def test_nothing_known_gives_the_cautious_sizes() -> None:
    numbers = replace(NUMBERS, compute_rate=None, memory_bandwidth=None)
    seqs, seqs_reason = choose_max_num_seqs(numbers, MODEL)
    tokens, tokens_reason = choose_max_num_batched_tokens(numbers, MODEL, seqs)
    assert (seqs, tokens) == (SEQS_UNKNOWN_RATE, TOKENS_UNKNOWN_RATE)
    assert "known" in seqs_reason
    assert "known" in tokens_reason


def test_there_is_always_room_for_one_request() -> None:
    assert choose_max_num_seqs(replace(NUMBERS, free_bytes=0), MODEL)[0] == 1
    assert choose_max_num_batched_tokens(replace(NUMBERS, free_bytes=0), MODEL, 1)[0] == (
        FEWEST_TOKENS
    )


def test_an_endless_rate_does_not_give_endless_requests() -> None:
    numbers = replace(NUMBERS, compute_rate=1e18, free_bytes=1000 * GIB)
    assert choose_max_num_seqs(numbers, MODEL)[0] == MOST_SEQS
