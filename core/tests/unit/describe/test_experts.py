from __future__ import annotations

from typing import Any

import pytest

from dougong.describe import ExpertsNeed
from dougong.describe.experts import describe_experts
from tests.unit.describe import families


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (families.MIXTRAL, ExpertsNeed(8, 2, 14336, 0, tuple(range(32)))),
        (families.QWEN_2_MOE, ExpertsNeed(64, 8, 2560, 1, tuple(range(28)))),
        (families.QWEN_3_MOE, ExpertsNeed(128, 8, 768, 0, tuple(range(5, 48, 2)))),
        (families.DEEPSEEK_V2, ExpertsNeed(160, 6, 1536, 2, tuple(range(1, 60)))),
        (families.DEEPSEEK_V3, ExpertsNeed(256, 8, 2048, 1, tuple(range(3, 61)))),
        (families.GPT_OSS_20B, ExpertsNeed(32, 4, 2880, 0, tuple(range(24)))),
    ],
    ids=["mixtral", "qwen2 moe", "qwen3 moe", "deepseek v2", "deepseek v3", "gpt-oss"],
)
def test_each_family_spells_its_experts(config: dict[str, Any], expected: ExpertsNeed) -> None:
    assert describe_experts(config, config["num_hidden_layers"]) == expected


def test_a_dense_model_has_none() -> None:
    assert describe_experts(families.LLAMA_3_8B, 32) is None
    assert describe_experts(families.LLAMA_3_8B | {"num_local_experts": 1}, 32) is None


def test_sparse_layers_may_be_listed_one_by_one() -> None:
    config = families.DEEPSEEK_V2 | {"moe_layer_freq": [0, 1, 0, 1], "first_k_dense_replace": 0}
    found = describe_experts(config, 4)
    assert found is not None
    assert found.layer_indices == (1, 3)
