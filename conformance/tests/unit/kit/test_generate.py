"""Inputs are the same bytes everywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path

import torch

from dougong_conformance.kit.generate import VALUES, VECTOR_SET, Draw, rotary_table

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_vector_set_is_the_last_part_of_the_suites_version() -> None:
    version = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["version"]
    assert version.endswith(f".{VECTOR_SET}")


def test_numbers_depend_on_id_and_index_alone() -> None:
    first, again = Draw("a", 1).normal(4, 5), Draw("a", 1).normal(4, 5)
    assert torch.equal(first, again)
    assert not torch.equal(first, Draw("a", 2).normal(4, 5))
    assert not torch.equal(first, Draw("b", 1).normal(4, 5))


def test_the_first_numbers_never_change_within_a_vector_set() -> None:
    drawn = Draw("frozen", 0).normal(3)
    assert drawn.tolist() == [0.09626160562038422, -1.1682134866714478, -0.5557349920272827]


def test_every_kind_of_value_has_its_shape_and_dtype() -> None:
    draw = Draw("kinds", 0, torch.bfloat16)
    for kind, make in VALUES.items():
        made = make(draw, (3, 8), 2.0)
        assert made.shape == (3, 8), kind
        assert made.dtype is torch.bfloat16, kind


def test_a_rotary_table_is_cosines_then_sines() -> None:
    table = rotary_table(16, 8)
    assert table.shape == (16, 8)
    assert torch.equal(table[0], torch.tensor([1.0] * 4 + [0.0] * 4))
