from __future__ import annotations

from dougong.describe.attention_layers import describe_attention_layers


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
