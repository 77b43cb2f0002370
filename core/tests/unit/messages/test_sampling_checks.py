from __future__ import annotations

from typing import Any

import pytest

from dougong.errors import RequestError
from dougong.messages.sampling_checks import bias_pairs, check_number, tuple_of


def test_a_bias_is_kept_as_pairs_ascending_by_id() -> None:
    assert bias_pairs("logit_bias", {7: 1, 2: -0.5}) == ((2, -0.5), (7, 1.0))
    assert bias_pairs("logit_bias", ((2, -0.5), [7, 1.0])) == ((2, -0.5), (7, 1.0))


@pytest.mark.parametrize(
    "wrong",
    [5, "ab", [5], [(1, 2, 3)], [(1, 1.0), (1, 2.0)], {"5": 1.0}, {5: "1"}, {5: True}, {True: 1.0},
     {5: float("nan")}, {5: float("inf")}],
)  # fmt: skip
def test_a_bias_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(RequestError) as caught:
        bias_pairs("logit_bias", wrong)
    assert caught.value.field == "logit_bias"


@pytest.mark.parametrize("wrong", ["12", b"12", 12, None])
def test_what_is_no_list_is_refused(wrong: Any) -> None:
    with pytest.raises(RequestError, match="a list of token ids"):
        tuple_of("stop_token_ids", wrong, "token ids")


def test_nan_is_outside_every_range() -> None:
    check_number("x", 1.0, 0, 1)
    for wrong in (float("nan"), 1.1, -0.1):
        with pytest.raises(RequestError, match="from 0 to 1"):
            check_number("x", wrong, 0, 1)
