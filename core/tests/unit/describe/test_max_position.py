from __future__ import annotations

from typing import Any

import pytest

from dougong.describe.max_position import resolve_max_position


def length(scaling: dict[str, Any] | None, stated: int = 2048) -> int:
    found = resolve_max_position({"max_position_embeddings": stated, "rope_scaling": scaling})
    assert found is not None
    return found[0]


def test_plain_rotation_reads_what_is_stated() -> None:
    assert length(None) == 2048
    assert length({"rope_type": "default"}) == 2048


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn"])
def test_stretching_kinds_multiply(kind: str) -> None:
    assert length({"rope_type": kind, "factor": 4.0}) == 8192


def test_yarn_does_not_multiply_a_length_that_has_the_factor_already() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    assert length(scaling, stated=8192) == 8192


def test_llama3_states_its_full_length() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    assert length(scaling, stated=131_072) == 131_072


def test_the_old_spelling_of_the_kind_is_read() -> None:
    assert length({"type": "linear", "factor": 2.0}) == 4096


def test_gemma3_states_its_length_after_scaling() -> None:
    scaling = {"rope_type": "linear", "factor": 8.0}
    config = {"model_type": "gemma3_text", "max_position_embeddings": 131_072}
    found = resolve_max_position({**config, "rope_scaling": scaling})
    assert found == (131_072, "max_position_embeddings=131072 of the checkpoint")


def test_no_stated_length_is_none() -> None:
    assert resolve_max_position({}) is None


@pytest.mark.parametrize(("padding", "length"), [(1, 512), (0, 513), (None, 512)])
def test_positions_that_begin_after_padding_leave_fewer(padding: int | None, length: int) -> None:
    config = {"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": padding}
    found = resolve_max_position(config)
    assert found is not None
    assert found[0] == length
    assert resolve_max_position({**config, "model_type": "bert"}) == (
        514,
        "max_position_embeddings=514 of the checkpoint",
    )
