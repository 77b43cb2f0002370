"""Sampling parameters: what is taken, what is refused and by which field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dougong.errors import RequestError
from dougong.messages import SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", 1e-40),
        ("top_k", 2**63),
        ("top_k", 1.5),
        ("logprobs", 2.5),
        ("max_tokens", "7"),
        ("n", True),
        ("seed", 1.0),
        ("stop_token_ids", ("1",)),
        ("stop", (1,)),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("seed", -1),
        ("seed", 2**63),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("logprobs", 21),
        ("prompt_logprobs", 21),
        ("prompt_logprobs", -1),
        ("prompt_logprobs", 1.0),
        ("stop", ("a",) * 17),
        ("stop", ("",)),
        ("stop_token_ids", tuple(range(129))),
        ("stop_token_ids", 7),
        ("stop", 7),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", float("nan")),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 101),
        ("repetition_penalty", "1"),
        ("frequency_penalty", 2.1),
        ("frequency_penalty", float("nan")),
        ("presence_penalty", -2.1),
        ("presence_penalty", float("-inf")),
        ("logit_bias", {1: 101}),
        ("logit_bias", {"1": 1}),
        ("logit_bias", 5),
        ("logit_bias", dict.fromkeys(range(1025), 0.0)),
        ("allowed_token_ids", ()),
        ("allowed_token_ids", range(4097)),
        ("allowed_token_ids", (1.0,)),
        ("bad_words", ("",)),
        ("bad_words", (1,)),
        ("bad_words", ("a",) * 129),
        ("bad_token_ids", ((),)),
        ("bad_token_ids", (5,)),
        ("bad_token_ids", (("5",),)),
        ("bad_token_ids", (range(33),)),
        ("bad_token_ids", ((1,),) * 513),
    ],
)
def test_a_value_out_of_range_is_refused_naming_the_field(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=field) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    "values",
    [
        {"n": 128},
        {"temperature": 0},
        {"top_p": 1.0},
        {"seed": 2**63 - 1},
        {"max_tokens": None, "min_tokens": 100},
        {"min_tokens": 16},
        {"logprobs": 20},
        {"stop": ("a",) * 16},
        {"min_p": 0},
        {"min_p": 1},
        {"repetition_penalty": 0.01},
        {"repetition_penalty": 100},
        {"frequency_penalty": -2, "presence_penalty": 2},
        {"logit_bias": dict.fromkeys(range(1024), 100)},
        {"logit_bias": None},
        {"allowed_token_ids": range(4096)},
        {"bad_words": ("a",) * 128},
        {"bad_token_ids": (range(32),) * 512},
    ],
)
def test_values_at_the_edge_are_taken(values: dict[str, Any]) -> None:
    SamplingParams(**values)


def test_one_stop_string_may_be_given_alone() -> None:
    assert SamplingParams(stop="END").stop == ("END",)


def test_only_zero_temperature_is_greedy() -> None:
    assert SamplingParams(temperature=0.0).is_greedy
    assert not SamplingParams(temperature=0.01).is_greedy


def test_equal_parameters_are_equal_and_can_be_hashed_whatever_they_were_made_of() -> None:
    one = SamplingParams(logit_bias={3: 1, 2: 0}, bad_token_ids=[[1, 2]], allowed_token_ids=[1])
    other = SamplingParams(
        logit_bias=((2, 0.0), (3, 1.0)), bad_token_ids=((1, 2),), allowed_token_ids=(1,)
    )
    assert one == other
    assert hash(one) == hash(other)
    assert replace(one, n=2).logit_bias == one.logit_bias


def test_one_bad_word_may_be_given_alone() -> None:
    assert SamplingParams(bad_words="no").bad_words == ("no",)


def test_each_penalty_is_one() -> None:
    assert not SamplingParams().has_penalties
    assert SamplingParams(repetition_penalty=0.5).has_penalties
    assert SamplingParams(frequency_penalty=0.5).has_penalties
    assert SamplingParams(presence_penalty=0.5).has_penalties
