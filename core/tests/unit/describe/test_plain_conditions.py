from __future__ import annotations

from typing import Any

import pytest

from dougong.contracts import (
    AtLeast,
    AtMost,
    Between,
    BindRequest,
    MultipleOf,
    Needs,
    OneOf,
    Property,
    TokenRange,
)
from dougong.describe.plain_conditions import (
    needs_from_plain,
    needs_to_plain,
    tokens_from_plain,
    tokens_to_plain,
)

FULL = Needs(
    dtype={"bfloat16", "float16"},
    features={"mm.bf16"},
    library="acme-kernels",
    driver=">=535.1",
    runtime=">=2.0,<3",
    env={"ACME_FAST": "1"},
    limits={"shared_memory_bytes": AtLeast(65536)},
    hidden_size=MultipleOf(64),
    num_heads=AtMost(8),
    head_dim=Between(64, 128),
    activation=OneOf("gelu", "silu"),
    weight_format="q4_1",
    has_bias=False,
)


@pytest.mark.parametrize("needs", [Needs(), FULL, Needs(group=OneOf(32, 64))], ids=str)
def test_conditions_come_back_as_they_went(needs: Needs) -> None:
    assert needs_from_plain(needs_to_plain(needs)) == needs


def test_what_is_not_asked_is_not_written() -> None:
    assert needs_to_plain(Needs()) == {}
    assert needs_to_plain(Needs(hidden_size=MultipleOf(64))) == {"hidden_size": {"multiple_of": 64}}


@pytest.mark.parametrize("tokens", [None, AtMost(4), AtLeast(2), Between(2, 3)])
def test_token_ranges_come_back_as_they_went(tokens: TokenRange | None) -> None:
    assert tokens_from_plain(tokens_to_plain(tokens)) == tokens


def test_a_plugins_own_constraint_is_told_and_holds_for_nothing() -> None:
    class Prime:
        def accepts(self, value: Property) -> bool:
            return value in (2, 3, 5)

        def __str__(self) -> str:
            return "a prime"

    needs = needs_from_plain(needs_to_plain(Needs(num_heads=Prime())))
    verdict = needs.check(BindRequest(dtype="float32"), {"num_heads": 3})
    assert verdict.reason == "num_heads 3; takes a prime"
    assert needs_to_plain(needs) == {"num_heads": {"undecidable": "a prime"}}


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        ({"dtypes": ["float16"]}, "dtypes is unknown: did you mean 'dtype'"),
        ({"dtype": [16]}, "dtype is 16"),
        ({"driver": "new"}, "no bound on a version"),
        ({"limits": ["x"]}, "limits is .* takes an object"),
        ({"limits": {"x": {"atleast": 1}}}, r"limits\.x is"),
        ({"env": {"X": 1}}, r"env\.X is 1"),
        ({"hidden_size": {"multiple_of": "64"}}, "hidden_size is"),
        ({"hidden_size": {"multiple_of": 0}}, "holds for no number"),
        ({"hidden_size": []}, "hidden_size is"),
        ({"hidden_size": {"between": [3]}}, "hidden_size is"),
    ],
)
def test_what_cannot_be_understood_is_named(plain: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        needs_from_plain(plain)


def test_a_token_range_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="tokens is"):
        tokens_from_plain({"multiple_of": 2})
