from __future__ import annotations

import pytest

from dougong.describe import resolve_architecture
from dougong.errors import CheckpointError

KNOWN = ("LlamaForCausalLM", "Qwen3ForCausalLM")


def test_the_first_known_name_is_taken() -> None:
    config = {"architectures": ["MysteryModel", "LlamaForCausalLM"]}
    assert resolve_architecture(config, KNOWN, reference="m") == "LlamaForCausalLM"


def test_an_unknown_name_is_refused_with_the_known_and_the_nearest() -> None:
    with pytest.raises(CheckpointError) as caught:
        resolve_architecture({"architectures": ["Qwen2ForCausalLM"]}, KNOWN, reference="my/model")
    message = str(caught.value)
    assert "my/model is a Qwen2ForCausalLM" in message
    assert "LlamaForCausalLM, Qwen3ForCausalLM" in message
    assert "nearest is Qwen3ForCausalLM" in message


def test_a_checkpoint_without_a_name_is_refused() -> None:
    with pytest.raises(CheckpointError, match="names no architecture"):
        resolve_architecture({"model_type": "llama"}, KNOWN, reference="m")


@pytest.mark.parametrize(
    ("named", "nearest"),
    [("llamaforcausallm", "LlamaForCausalLM"), ("ZZZ", ""), ("Quen", "Qwen3ForCausalLM")],
)
def test_the_nearest_is_always_told_however_far_it_is(named: str, nearest: str) -> None:
    with pytest.raises(CheckpointError, match=f"nearest is {nearest}"):
        resolve_architecture({"architectures": [named]}, KNOWN, reference="m")


def test_the_type_of_the_model_stands_for_a_missing_name() -> None:
    with pytest.raises(CheckpointError, match="nearest is Qwen3ForCausalLM"):
        resolve_architecture({"model_type": "qwen3"}, KNOWN, reference="m")
