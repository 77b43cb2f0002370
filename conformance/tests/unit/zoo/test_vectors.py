from __future__ import annotations

import pytest
import torch

from dougong_conformance.zoo.decoder import Decoder, greedy, legal_noise
from dougong_conformance.zoo.models import MODELS, tensor_shapes, weights_of
from dougong_conformance.zoo.vectors import all_vectors, vectors_of


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_stored_answers_that_the_decoder_gives(name: str) -> None:
    decoder = Decoder(MODELS[name])
    for vector in vectors_of(name):
        tokens, margin = greedy(decoder, vector.prompt, len(vector.tokens))
        assert tokens == vector.tokens
        assert margin == pytest.approx(vector.margin, abs=1e-3)


def test_no_legal_rounding_can_change_a_stored_answer() -> None:
    for vector in all_vectors():
        assert vector.margin >= 6 * vector.noise
        noise = legal_noise(MODELS[vector.model], vector.prompt + vector.tokens, torch.bfloat16)
        assert noise <= vector.noise * 1.2


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_is_the_same_number_in_every_compute_dtype(name: str) -> None:
    weights = weights_of(MODELS[name])
    assert set(weights) == {tensor for tensor, _ in tensor_shapes(MODELS[name].config)}
    for weight in weights.values():
        for dtype in (torch.bfloat16, torch.float16):
            assert torch.equal(weight.to(dtype).float(), weight)


def test_weights_are_drawn_alike_everywhere() -> None:
    weight = weights_of(MODELS["grouped"])["model.layers.1.mlp.up_proj.weight"]
    assert (weight[0, :4] * 1024).tolist() == [-17.0, 109.0, -88.0, 125.0]


def test_a_window_hides_what_lies_before_it() -> None:
    decoder, tail = Decoder(MODELS["window"]), [7, 9, 11] + [5] * 15
    reach = 2 * (7 - 1) + 1  # two layers of a window of seven
    assert len(tail) > reach
    one, other = (decoder.logits([first, *tail])[-1] for first in (3, 4))
    assert torch.equal(one, other)
    one, other = (decoder.logits([first, *tail[: reach - 3]])[-1] for first in (3, 4))
    assert not torch.equal(one, other)
