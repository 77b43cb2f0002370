"""What a launcher refuses, before triton is needed: kernels themselves check nothing."""

from __future__ import annotations

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""What tensors of numbers may be."""

INDEX_DTYPES = (torch.int32, torch.int64)
"""What slots and positions may be."""

MAX_HEAD_DIM = 256
"""Largest head that the tile table knows a size for."""


def same_kind(**tensors: torch.Tensor) -> None:
    """All of one float dtype and on one device, last axes contiguous.

    Raises:
        TypeError: A dtype that kernels do not take, or two of them.
        ValueError: Two devices, or a last axis with gaps.
    """
    first_name, first = next(iter(tensors.items()))
    if first.dtype not in DTYPES:
        raise TypeError(
            f"{first_name} is {first.dtype}; kernels take float32, float16 and bfloat16"
        )
    for name, tensor in tensors.items():
        if tensor.dtype is not first.dtype:
            raise TypeError(
                f"{name} is {tensor.dtype} and {first_name} is {first.dtype}; "
                "both must be of one dtype"
            )
        same_device(first_name, first, **{name: tensor})
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(
                f"The last axis of {name} has stride {tensor.stride(-1)}; kernels read it in one "
                f"piece. Pass {name}.contiguous()"
            )


def same_device(first_name: str, first: torch.Tensor, **tensors: torch.Tensor) -> None:
    """All on the device of the first.

    Raises:
        ValueError: One is not.
    """
    for name, tensor in tensors.items():
        if tensor.device != first.device:
            raise ValueError(
                f"{name} is on {tensor.device} and {first_name} on {first.device}; a kernel reads "
                "one device's memory"
            )


def shape(name: str, tensor: torch.Tensor, *expected: int | None) -> None:
    """Of these sizes; ``None``: of any.

    Raises:
        ValueError: It is not.
    """
    fits = tensor.dim() == len(expected) and all(
        size is None or size == given for size, given in zip(expected, tensor.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in expected)
        raise ValueError(f"{name} has shape {list(tensor.shape)}; expected [{wanted}]")


def index(name: str, tensor: torch.Tensor, *dtypes: torch.dtype) -> None:
    """Of one of these integer dtypes, last axis contiguous.

    Raises:
        TypeError: It is not.
        ValueError: The last axis has gaps.
    """
    if tensor.dtype not in dtypes:
        known = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} is {tensor.dtype}; expected {known}")
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"The last axis of {name} has stride {tensor.stride(-1)}; expected 1")


def head_dim(size: int) -> None:
    """One that the tile table knows.

    Raises:
        ValueError: It is larger.
    """
    if not 0 < size <= MAX_HEAD_DIM:
        raise ValueError(
            f"head_dim is {size}; tiles are known up to {MAX_HEAD_DIM}. Use another backend for "
            "this layer"
        )


def terms(sliding_window: int | None, soft_cap: float | None) -> None:
    """Above zero, where given.

    Raises:
        ValueError: One is not.
    """
    if sliding_window is not None and sliding_window < 1:
        raise ValueError(
            f"sliding_window is {sliding_window}; a query sees itself at least, so it is 1 or more"
        )
    if soft_cap is not None and not soft_cap > 0:
        raise ValueError(f"soft_cap is {soft_cap}; it divides scores, so it is above 0")


def next_power_of_2(number: int) -> int:
    """The smallest that is not below it; 1 for 0."""
    return 1 << max(number - 1, 0).bit_length()
