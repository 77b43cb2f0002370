"""The plain wrapper against one product per token."""

from __future__ import annotations

import pytest
import torch

from dougong.reference import ReferenceLoRAWrapper

IN, OUT, RANK, SLOTS = 12, 7, 3, 4
CPU = torch.device("cpu")


def seeded(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def stored(b: torch.Tensor) -> torch.Tensor:
    """As the core stores it."""
    return b.transpose(1, 2).contiguous().transpose(1, 2)


def wrapper() -> ReferenceLoRAWrapper:
    return ReferenceLoRAWrapper(max_num_batched_tokens=16, max_loras=SLOTS, device=CPU)


A, B = seeded(SLOTS, RANK, IN, seed=1), stored(seeded(SLOTS, OUT, RANK, seed=2))


def expected(x: torch.Tensor, slots: list[int], scale: float) -> torch.Tensor:
    added = torch.zeros(len(slots), OUT)
    for row, slot in enumerate(slots):
        if slot >= 0:
            added[row] = scale * (B[slot] @ (A[slot] @ x[row]))
    return added


@pytest.mark.parametrize("slots", [[0], [-1], [3, 3, 3], [-1, 2, 0, -1, 3, 1, 1, 0], [2] * 16])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_each_token_gets_its_own_adapter_or_none(slots: list[int], scale: float) -> None:
    x, out = seeded(len(slots), IN), seeded(len(slots), OUT, seed=3)
    before, made = out.clone(), wrapper()
    made.update_metadata(torch.tensor(slots))
    made.add_lora_linear(out, x, A, B, scale)
    torch.testing.assert_close(out, before + expected(x, slots, scale))
    rows = [row for row, slot in enumerate(slots) if slot < 0]
    assert torch.equal(out[rows], before[rows])


def test_columns_of_a_wider_output_are_added_to_in_place() -> None:
    slots, wide = [1, -1, 0], torch.zeros(3, OUT + 5)
    made, x = wrapper(), seeded(3, IN)
    made.update_metadata(torch.tensor(slots))
    made.add_lora_linear(wide[:, 2 : 2 + OUT], x, A, B, 1.0)
    torch.testing.assert_close(wide[:, 2 : 2 + OUT], expected(x, slots, 1.0))
    assert not wide[:, :2].any()
    assert not wide[:, 2 + OUT :].any()


def test_what_other_slots_hold_reaches_no_token() -> None:
    a, b = A.clone(), B.clone()
    a[[0, 2, 3]], b[[0, 2, 3]] = 1e30, 1e30  # finite, and no product of the two is
    out, x, made = torch.zeros(2, OUT), seeded(2, IN), wrapper()
    made.update_metadata(torch.tensor([1, -1]))
    made.add_lora_linear(out, x, a, b, 1.0)
    torch.testing.assert_close(out, expected(x, [1, -1], 1.0))


def test_the_mask_of_every_step_lies_where_captured_steps_read_it() -> None:
    made, places = wrapper(), set()
    for slots in ([0, 1], [2, -1], [0] * 16, [1, 1]):
        made.update_metadata(torch.tensor(slots))
        places.add(made._is_used[: len(slots)].data_ptr())
    assert len(places) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_near_as_it_can_be(dtype: torch.dtype) -> None:
    slots = [0, 3, -1]
    x, made = seeded(3, IN), wrapper()
    out = torch.zeros(3, OUT, dtype=dtype)
    made.update_metadata(torch.tensor(slots))
    made.add_lora_linear(out, x.to(dtype), A.to(dtype), B.to(dtype), 1.0)
    torch.testing.assert_close(out.float(), expected(x, slots, 1.0), atol=0.2, rtol=0.05)
