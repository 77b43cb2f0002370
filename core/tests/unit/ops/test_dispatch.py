"""What a call runs: the right function, the right arguments, the right piece."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.ops.dispatch import BoundPiece, by_tokens, with_extra


def told(*args: Any) -> tuple[Any, ...]:
    return args


@pytest.mark.parametrize("num_args", [1, 2, 6, None])
@pytest.mark.parametrize("num_extra", [0, 1, 9])
def test_extra_arguments_follow_the_ops_own(num_args: int | None, num_extra: int) -> None:
    extra = tuple(f"extra {index}" for index in range(num_extra))
    args = tuple(range(num_args or 3))
    assert with_extra(told, extra, num_args)(*args) == (*args, *extra)


def test_without_extra_arguments_the_function_itself_runs() -> None:
    assert with_extra(told, (), 1) is told
    only = BoundPiece("acme/x", told)
    assert by_tokens([only], None) is told


@pytest.mark.parametrize("num_args", [1, 3, None])
@pytest.mark.parametrize("limits", [(4,), (1, 2), (1, 4, 8), (1, 2, 3, 4, 5, 6)])
def test_each_token_count_finds_its_piece(limits: tuple[int, ...], num_args: int | None) -> None:
    def piece(name: str, up_to: int | None) -> BoundPiece:
        return BoundPiece(name, lambda *args: (name, len(args)), up_to)

    names = [*map(str, limits), "rest"]
    pieces = [piece(n, limit) for n, limit in zip(names, [*limits, None], strict=True)]
    choose = by_tokens(pieces, num_args)
    for num_tokens in range(12):
        expected = next((str(limit) for limit in limits if num_tokens <= limit), "rest")
        args = (torch.empty(num_tokens, 2), *["other"] * ((num_args or 2) - 1))
        assert choose(*args) == (expected, len(args))
