"""The table of chips: whole, in order, and within the limits that it states itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dougong_triton_kernels
from dougong_triton_kernels.checks import MAX_HEAD_DIM
from dougong_triton_kernels.launching import Launch
from dougong_triton_kernels.targets import GENERIC, Target, target, targets
from tests.lane.cases import launches

KERNELS = Path(dougong_triton_kernels.__file__).parent / "kernels"
LIMITS = {
    "gfx90a": 65536,
    "gfx942": 65536,
    "gfx950": 163840,
    "gfx1100": 65536,
    "sm_80": 166912,
    "sm_90": 232448,
}


def test_limits_are_those_that_vendors_publish() -> None:
    assert {name: one.shared_bytes for name, one in targets().items() if one.backend} == LIMITS


def problems(one: Target) -> list[str]:
    """What is wrong with a row of the table."""
    found = []
    for phase in ("decode", "mixed"):
        rows = getattr(one, phase)
        sizes = [(row.head_bytes, row.item_bytes) for row in rows]
        if sizes != sorted(sizes):
            found.append(f"{phase}: a row that fits more stands before one that fits less")
        if rows[-1].head_bytes < MAX_HEAD_DIM * 4 or rows[-1].item_bytes < 4:
            found.append(f"{phase}: float32 heads of {MAX_HEAD_DIM} have no row")
        for row in rows:
            # Keys and values of each stage lie on the chip at once, where a pipeline holds them.
            held = row.tile * row.head_bytes * (2 * (row.num_stages - 1) or 1)
            if held > one.shared_bytes:
                found.append(f"{phase}: tiles of {held} bytes; there are {one.shared_bytes}")
            sizes_of = (row.tile, row.num_warps, *((row.rows,) if phase == "mixed" else ()))
            if any(size < 1 or size & (size - 1) for size in sizes_of):
                found.append(f"{phase}: {sizes_of} are not powers of two")
            if row.tile < 16 or (phase == "mixed" and row.rows < 16):
                found.append(f"{phase}: a matrix instruction takes 16 rows at least")
    return found


@pytest.mark.parametrize("name", targets())
def test_a_row_is_whole_and_within_its_limit(name: str) -> None:
    assert problems(targets()[name]) == []


def test_a_row_that_breaks_the_rules_is_found_out() -> None:
    """Planted."""
    one = targets()["gfx942"]
    huge = Target(
        name="x", shared_bytes=one.shared_bytes // 2, decode=one.decode[:1], mixed=one.mixed[::-1]
    )
    assert len(problems(huge)) >= 3


def test_an_unknown_chip_gets_the_generic_row() -> None:
    assert target("gfx9999").name == GENERIC
    assert target("gfx942:sramecc+:xnack-").name == "gfx942"


def test_float32_may_have_tiles_of_its_own() -> None:
    one = target("sm_90")
    assert one.tiles("mixed", 256, 2).tile > one.tiles("mixed", 128, 4).tile
    with pytest.raises(ValueError, match="no tile"):
        one.tiles("mixed", 512, 4)


def parameters(name: str) -> list[str]:
    """Of a kernel, from its source."""
    module, _, function = name.partition(".")
    tree = ast.parse((KERNELS / f"{module}.py").read_text("utf-8"))
    found = next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function
    )
    return [one.arg for one in found.args.args]


@pytest.mark.parametrize("arch", targets())
def test_every_launch_names_its_kernels_parameters_in_order(arch: str) -> None:
    made: dict[str, Launch] = launches(arch)
    assert len(made) > 30
    for name, launch in made.items():
        given = [*launch.arguments, *launch.constants]
        wanted = parameters(launch.kernel)
        assert given[: len(launch.arguments)] == wanted[: len(launch.arguments)], name
        assert sorted(given) == sorted(wanted), name
        assert all(size > 0 for size in launch.grid), name
