from __future__ import annotations

from pathlib import Path

import pytest

from dougong.checkpoint.rope_freqs import llama3_rope
from dougong.errors import CheckpointError
from tests.support.checkpoints import LLAMA3, LLAMA3_TABLE


def test_llama3_scaling_is_recovered_from_its_table() -> None:
    assert llama3_rope(LLAMA3_TABLE, 64, 500000.0, Path("m.gguf")) == LLAMA3


def test_a_table_of_ones_scales_nothing() -> None:
    assert llama3_rope((1.0,) * 32, 64, 500000.0, Path("m.gguf")) is None


@pytest.mark.parametrize(
    "table",
    [(1.0, 2.0, 3.0, 4.0) * 8, LLAMA3_TABLE[:-1], (32.0,) * 32],
    ids=["another rule", "another length", "every wave slowed"],
)
def test_a_table_by_another_rule_is_refused(table: tuple[float, ...]) -> None:
    with pytest.raises(CheckpointError, match="not Llama 3's rule"):
        llama3_rope(table, 64, 500000.0, Path("m.gguf"))
