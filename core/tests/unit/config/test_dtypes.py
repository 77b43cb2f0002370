from __future__ import annotations

import pytest

from dougong.config.args import EngineArgs
from dougong.config.dtypes import resolve_dtype, resolve_kv_dtype
from dougong.config.wishes import Wishes
from tests.support.made_up_cards import made_up_card

CLAIMS = made_up_card().claims


def wishes(**asked: str) -> Wishes:
    return Wishes.of_user(EngineArgs(model="m", **asked))  # type: ignore[arg-type]  # dtypes only


def test_unset_takes_the_checkpoints_dtype_where_it_is_claimed() -> None:
    noted = wishes()
    assert resolve_dtype(noted, "float32", CLAIMS, "paper") == "float32"
    assert noted.decisions[0].author == "checkpoint"


def test_unset_takes_the_preferred_dtype_where_the_checkpoints_is_not_claimed() -> None:
    noted = wishes(dtype="auto")
    assert resolve_dtype(noted, "float16", CLAIMS, "paper") == "bfloat16"
    assert "float16" in noted.decisions[0].reason


@pytest.mark.parametrize(("asked", "meant"), [("bf16", "bfloat16"), ("float32", "float32")])
def test_an_asked_dtype_is_obeyed(asked: str, meant: str) -> None:
    assert resolve_dtype(wishes(dtype=asked), "float16", CLAIMS, "paper") == meant


@pytest.mark.parametrize("asked", ["float16", "fp8", "int3", "bfloat"])
def test_an_asked_dtype_that_is_not_claimed_is_refused_with_the_claimed_ones(asked: str) -> None:
    noted = wishes(dtype=asked)
    resolve_dtype(noted, "float32", CLAIMS, "paper")
    (problem,) = (*noted.problems, *noted.doubts)
    assert f"dtype={asked}" in problem
    assert "bfloat16, float32" in problem


def test_the_kv_cache_is_stored_as_computed() -> None:
    assert resolve_kv_dtype(wishes(), "float32", CLAIMS, "paper") == "float32"


def test_the_kv_cache_takes_the_preferred_dtype_where_the_computed_is_not_stored() -> None:
    noted = wishes()
    assert resolve_kv_dtype(noted, "float16", CLAIMS, "paper") == "bfloat16"
    assert "float16" in noted.decisions[0].reason


def test_a_kv_dtype_that_is_not_claimed_is_refused() -> None:
    noted = wishes(kv_cache_dtype="fp8")
    resolve_kv_dtype(noted, "bfloat16", CLAIMS, "paper")
    assert "kv_cache_dtype=fp8" in noted.doubts[0]
