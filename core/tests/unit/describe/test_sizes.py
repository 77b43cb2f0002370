from __future__ import annotations

from typing import Any

import pytest

from dougong.describe.sizes import check_sizes
from dougong.errors import CheckpointError
from tests.unit.describe import families


def problems(config: dict[str, Any]) -> tuple[str, ...]:
    try:
        check_sizes(config, "m")
    except CheckpointError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    "config", [families.LLAMA_3_8B, families.DEEPSEEK_V3, families.GEMMA_3_1B, families.GPT_OSS_20B]
)
def test_real_families_pass(config: dict[str, Any]) -> None:
    assert problems(config) == ()


@pytest.mark.parametrize("value", [None, 0, -1, "4096", True, 2.5])
def test_a_size_is_a_positive_whole_number(value: object) -> None:
    (problem,) = problems(families.LLAMA_3_8B | {"hidden_size": value})
    assert problem == "hidden_size is missing or no positive number"


def test_every_missing_one_is_named() -> None:
    assert len(problems({})) == 4
    assert len(problems({"kv_lora_rank": 512})) == 7


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_key_value_heads": 5}, "cannot share 5 KV heads"),
        ({"num_key_value_heads": [8, 4]}, "no one number for all layers"),
        ({"hidden_size": 4097}, "no multiple of 32"),
    ],
)
def test_sizes_that_contradict_are_named(change: dict[str, Any], told: str) -> None:
    (problem,) = problems(families.LLAMA_3_8B | change)
    assert told in problem


def test_a_head_size_of_its_own_needs_no_multiple() -> None:
    assert problems(families.LLAMA_3_8B | {"hidden_size": 4097, "head_dim": 128}) == ()
