"""What changed in arguments, bit by bit, whatever they look like."""

from __future__ import annotations

import pytest
import torch

from dougong.ops.argument_copies import ArgumentCopies

TENSORS = {
    "float": torch.tensor([[1.0, torch.nan], [torch.inf, -0.0]]),
    "half precision": torch.tensor([1.0, torch.nan], dtype=torch.bfloat16),
    "ids": torch.tensor([5, 6]),
    "flags": torch.tensor([True, False]),
    "slices": torch.arange(24.0).view(2, 3, 4)[:, 1:2],
    "columns": torch.arange(6.0).view(2, 3).t(),
    "a number": torch.tensor(3.0),
    "nothing": torch.empty(0, 4),
}


@pytest.mark.parametrize("name", TENSORS)
def test_what_is_left_alone_is_unchanged_and_comes_back_as_it_was(name: str) -> None:
    tensor = TENSORS[name].clone(memory_format=torch.preserve_format)
    copies = ArgumentCopies(("x", "n"), (tensor, 3))
    assert copies.changed(allowed=()) == []
    restored, number = copies.restored()
    assert number == 3
    assert restored.data_ptr() != tensor.data_ptr() or not tensor.numel()
    torch.testing.assert_close(restored, tensor, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in TENSORS if name != "nothing"])
def test_a_changed_element_is_seen_and_the_copy_has_the_old_one(name: str) -> None:
    tensor = TENSORS[name].clone(memory_format=torch.preserve_format)
    before = tensor.clone()
    copies = ArgumentCopies(("x",), (tensor,))
    tensor[(0,) * tensor.dim()] = 0 if tensor.any() and tensor[(0,) * tensor.dim()] else 9
    assert copies.changed(allowed=()) == ["x"]
    assert copies.changed(allowed=("x",)) == []
    torch.testing.assert_close(copies.restored()[0], before, rtol=0, atol=0, equal_nan=True)


def test_a_call_may_leave_arguments_out_or_give_none() -> None:
    copies = ArgumentCopies(("x", "residual", "more"), (torch.ones(2), None))
    assert copies.changed(allowed=()) == []
    assert copies.restored()[1] is None
