"""Slots of a rank: filled and cleared whole, checked before anything is written."""

from __future__ import annotations

import pytest
import torch

from dougong.contracts import LoRAPair, LoRAWeights
from dougong.errors import RequestError
from dougong.lora import LoRASlots, adapter_places
from dougong.lora.linear import LoRALinear
from dougong.models.llama import LlamaForCausalLM
from dougong.reference import ReferenceLoRAWrapper
from tests.support.tiny_models import tiny_config

NAME = "model.layers.1.self_attn.k_proj"
X = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
TWO = torch.tensor([1, -1, 0])


def pair(seed: int, rank: int = 2, width: int = 64) -> LoRAPair:
    generator = torch.Generator().manual_seed(seed)
    return LoRAPair(
        torch.randn(rank, width, generator=generator), torch.randn(32, rank, generator=generator)
    )


def made() -> tuple[LoRASlots, LoRALinear]:
    model = LlamaForCausalLM(tiny_config(), torch.float32, 64)
    for parameter in model.parameters():
        parameter.data.fill_(0.0)
    places = adapter_places(model, model.weight_targets())
    wrapper = ReferenceLoRAWrapper(
        max_num_batched_tokens=8, max_loras=2, device=torch.device("cpu")
    )
    slots = LoRASlots(model, places, wrapper, max_rank=4)
    found = model.get_submodule("layers.1.attention.qkv")
    assert isinstance(found, LoRALinear)
    return slots, found


def keys(slots: LoRASlots, linear: LoRALinear) -> torch.Tensor:
    """What three tokens get, of slots 1, none and 0; the model itself gives zeros."""
    slots.begin_step(TWO)
    out = linear(X)
    slots.end_step()
    assert not out[:, :64].any()
    assert not out[:, 96:].any()
    return out[:, 64:96]


def added(one: LoRAPair, row: int) -> torch.Tensor:
    return one.b @ (one.a @ X[row])


def test_a_projection_reads_as_before_and_adds_what_its_slots_hold() -> None:
    slots, linear = made()
    assert linear.weight is linear.inner.weight
    assert linear.bias is None
    one, other = pair(1), pair(2, rank=4)
    slots.set(0, LoRAWeights(2, {NAME: one}))
    slots.set(1, LoRAWeights(4, {NAME: other}))
    found = keys(slots, linear)
    torch.testing.assert_close(found[0], added(other, 0))
    torch.testing.assert_close(found[2], added(one, 2))
    assert not found[1].any()
    assert not linear(X).any()  # between steps nothing is added
    with slots.captured(TWO):
        assert linear(X).any()
    assert not linear(X).any()


def test_a_slot_is_written_whole_so_that_nothing_of_its_past_is_left() -> None:
    slots, linear = made()
    slots.set(1, LoRAWeights(4, {NAME: pair(2, rank=4)}))
    small = pair(3, rank=1)
    slots.set(1, LoRAWeights(1, {NAME: small}))
    torch.testing.assert_close(keys(slots, linear)[0], added(small, 0))
    other = "model.layers.0.self_attn.k_proj"
    slots.set(1, LoRAWeights(1, {other: small}))
    assert not keys(slots, linear).any()
    slots.set(1, LoRAWeights(1, {NAME: small}))
    slots.set(1, None)
    assert not keys(slots, linear).any()


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        (LoRAWeights(5, {NAME: pair(1, rank=5)}), "--max-lora-rank 5"),
        (LoRAWeights(2, {NAME: pair(1), "lm_head": pair(1)}), "'lm_head' takes no adapter here"),
        (LoRAWeights(2, {NAME: pair(1), f"{NAME}2": pair(1)}), "what does: q_proj, k_proj"),
        (LoRAWeights(2, {NAME: pair(1, width=60)}), r"the model needs \(2, 64\) and \(32, 2\)"),
    ],
)
def test_what_does_not_fit_changes_nothing(weights: LoRAWeights, why: str) -> None:
    slots, linear = made()
    before = LoRAWeights(2, {NAME: pair(7)})
    slots.set(1, before)
    expected = keys(slots, linear)
    with pytest.raises(RequestError, match=why) as caught:
        slots.set(1, weights)
    assert caught.value.field == "lora_path"
    assert torch.equal(keys(slots, linear), expected)


def test_there_are_no_other_slots_and_their_memory_is_what_was_counted() -> None:
    slots, _ = made()
    for slot in (-1, 2):
        with pytest.raises(RequestError, match="there are 2, from 0 on"):
            slots.set(slot, None)
    model = LlamaForCausalLM(tiny_config(), torch.float32, 64)
    places = adapter_places(model, model.weight_targets())
    each = sum(one.in_features + one.out_features for one in places)
    assert slots.num_bytes == 2 * 4 * each * 4
