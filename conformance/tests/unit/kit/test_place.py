"""Parts of wider tensors."""

from __future__ import annotations

import torch

from dougong_conformance.kit.place import outside, part_of, poisoned, shifted, within


def test_a_part_lies_within_poison() -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    placed = within(x, 1, 1, 2)
    assert torch.equal(part_of(placed), x)
    assert not part_of(placed).is_contiguous()
    assert placed["base"].numel() == 2 * 6 * 4
    rest = outside(placed, placed["base"])
    assert rest.numel() == 24
    assert rest.isnan().all()


def test_a_shifted_part_starts_one_element_late() -> None:
    x = torch.arange(6.0).view(2, 3)
    placed = shifted(x)
    assert placed["offset"] == 1
    assert torch.equal(part_of(placed), x)
    assert outside(placed, placed["base"]).numel() == 2


def test_poison_is_nan_or_large() -> None:
    assert poisoned([2, 3], torch.bfloat16).isnan().all()
    assert poisoned([2], torch.int32).tolist() == [0x7F7F7F7F] * 2
