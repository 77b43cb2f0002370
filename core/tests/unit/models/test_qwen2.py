from __future__ import annotations

from typing import Any

import pytest

from dougong.models.qwen2 import Qwen2ForCausalLM
from dougong.models.qwen3 import Qwen3ForCausalLM
from tests.support.tiny_models import tiny_config

ASKED = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}


def test_qwen2_has_biases_on_queries_keys_and_values_only() -> None:
    settings = Qwen2ForCausalLM.read_settings(tiny_config(attention_bias=False, mlp_bias=True))
    assert settings.attention_bias
    assert not settings.output_bias
    assert not settings.mlp_bias
    assert not settings.has_qk_norm


@pytest.mark.parametrize("cls", [Qwen2ForCausalLM, Qwen3ForCausalLM])
@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"sliding_window": 8}, (None, None)),
        ({"sliding_window": 8, "use_sliding_window": False}, (None, None)),
        (ASKED, (None, 8)),
        ({**ASKED, "max_window_layers": None}, (None, None)),
        ({**ASKED, "sliding_window": None}, (None, None)),
        ({**ASKED, "layer_types": ["sliding_attention", "full_attention"]}, (8, None)),
    ],
    ids=["unasked", "refused", "from layer 1", "from layer 28", "none", "by layer"],
)
def test_a_window_must_be_asked_for(
    cls: type[Qwen2ForCausalLM | Qwen3ForCausalLM],
    changes: dict[str, Any],
    windows: tuple[int | None, ...],
) -> None:
    assert cls.read_settings(tiny_config(**changes)).sliding_windows == windows
