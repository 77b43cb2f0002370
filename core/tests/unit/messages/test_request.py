"""Sampling parameters: what is taken, what is refused and by which field."""

from __future__ import annotations

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
        ("stop", ("a",) * 17),
        ("stop", ("",)),
        ("stop_token_ids", tuple(range(129))),
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
    ],
)
def test_values_at_the_edge_are_taken(values: dict[str, Any]) -> None:
    SamplingParams(**values)


def test_one_stop_string_may_be_given_alone() -> None:
    assert SamplingParams(stop="END").stop == ("END",)


def test_only_zero_temperature_is_greedy() -> None:
    assert SamplingParams(temperature=0.0).is_greedy
    assert not SamplingParams(temperature=0.01).is_greedy
