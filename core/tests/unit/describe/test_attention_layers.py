from __future__ import annotations

import pytest

from dougong.describe.attention_layers import describe_attention_layers, layer_windows
from dougong.errors import CheckpointError


def test_without_a_window_all_layers_are_alike() -> None:
    (kind,) = describe_attention_layers({}, 3)
    assert kind.layer_indices == (0, 1, 2)
    assert kind.sliding_window is None


def test_a_window_holds_for_every_layer_unless_it_is_switched_off() -> None:
    assert describe_attention_layers({"sliding_window": 64}, 2)[0].sliding_window == 64
    config = {"sliding_window": 64, "use_sliding_window": False}
    assert describe_attention_layers(config, 2)[0].sliding_window is None


def test_layer_types_say_which_layers_have_the_window() -> None:
    config = {
        "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }
    full, sliding = describe_attention_layers(config, 3)
    assert (full.layer_indices, full.sliding_window) == ((1,), None)
    assert (sliding.layer_indices, sliding.sliding_window) == ((0, 2), 64)


def test_layer_types_go_before_any_pattern() -> None:
    config = {"model_type": "gemma2", "sliding_window": 8, "layer_types": ["full_attention"] * 2}
    assert layer_windows(config, 2) == (None, None)


def test_a_pattern_may_be_a_number_or_letters() -> None:
    config = {"sliding_window": 8, "sliding_window_pattern": 3}
    assert layer_windows(config, 4) == (8, 8, None, 8)
    assert layer_windows(config | {"sliding_window_pattern": "LG"}, 3) == (8, None, 8)


def test_a_window_may_begin_at_a_layer() -> None:
    config = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}
    assert layer_windows(config, 4) == (None, None, 8, 8)


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_a_family_whose_window_begins_at_layer_28_unless_it_says(model_type: str) -> None:
    config = {"model_type": model_type, "sliding_window": 8, "use_sliding_window": True}
    assert layer_windows(config, 30) == (None,) * 28 + (8, 8)
    assert layer_windows({**config, "max_window_layers": 0}, 1) == (8,)


def test_a_family_that_must_ask_for_its_window_has_none_unasked() -> None:
    assert layer_windows({"model_type": "qwen2", "sliding_window": 8}, 1) == (None,)


def test_layers_without_attention_are_not_counted() -> None:
    kinds = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
    assert layer_windows({"layer_types": kinds}, 4) == (None, None)


@pytest.mark.parametrize(
    ("kinds", "told"),
    [(["full_attention"], "names 1 layers"), (["odd_attention"] * 2, "odd_attention")],
)
def test_layer_types_that_make_no_sense_are_refused(kinds: list[str], told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        layer_windows({"layer_types": kinds}, 2)
