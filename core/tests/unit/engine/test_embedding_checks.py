from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dougong.config.pooling import PoolingConfig
from dougong.engine.embedding_checks import (
    check_makes_text,
    check_makes_vectors,
    check_pooling,
    prompt_of,
)
from dougong.errors import RequestError
from dougong.messages import PoolingParams, PoolingSpec

PLAIN = PoolingConfig(
    spec=PoolingSpec(method="mean"), embedding_size=32, prompts={"query": "Q: ", "text": ""}
)
FREE = replace(PLAIN, spec=PoolingSpec(method="mean", is_matryoshka=True))
SOME = replace(PLAIN, spec=PoolingSpec(method="mean", is_matryoshka=True, dimensions=(8, 16)))


def refused(call: Callable[[], object]) -> str | None:
    """The field that is named."""
    with pytest.raises(RequestError) as caught:
        call()
    return caught.value.field


def test_a_model_does_one_of_the_two() -> None:
    check_makes_text(None)
    assert check_makes_vectors(PLAIN) is PLAIN
    assert refused(lambda: check_makes_text(PLAIN)) == "model"
    assert refused(lambda: check_makes_vectors(None)) == "model"


@pytest.mark.parametrize(
    ("pooling", "taken", "wrong"),
    [(PLAIN, (None, 32), (8, 33)), (FREE, (1, 31, 32), (33,)), (SOME, (8, 16, 32), (4, 24, 64))],
)
def test_a_vector_is_cut_only_where_and_how_the_checkpoint_says(
    pooling: PoolingConfig, taken: tuple[int | None, ...], wrong: tuple[int, ...]
) -> None:
    for size in taken:
        check_pooling(PoolingParams(dimensions=size), pooling)
    for size in wrong:
        params = PoolingParams(dimensions=size)
        assert refused(lambda params=params: check_pooling(params, pooling)) == "dimensions"  # type: ignore[misc]  # a default binds it


def test_a_prompt_is_found_by_its_name_or_is_the_default() -> None:
    assert prompt_of(None, PLAIN) == ""
    assert prompt_of("query", PLAIN) == "Q: "
    assert prompt_of(None, replace(PLAIN, default_prompt="query")) == "Q: "
    assert prompt_of("text", replace(PLAIN, default_prompt="query")) == ""
    assert refused(lambda: prompt_of("document", PLAIN)) == "prompt_name"
