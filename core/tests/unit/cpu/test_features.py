from __future__ import annotations

import pytest

from dougong.cpu.features import parse_features
from dougong.cpu.native.levels import LEVELS, usable_levels

BF16_CPU = "flags\t: fpu avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_bf16 avx512_vnni"
PLAIN_CPU = "flags\t: fpu avx2 fma f16c"


def test_flags_become_named_features() -> None:
    assert parse_features(f"processor\t: 0\n{BF16_CPU}\n") == {
        "isa.avx2",
        "isa.avx512f",
        "mm.bf16.avx512",
        "mm.int8.vnni",
    }
    assert parse_features("Features\t: fp asimd bf16") == {"isa.neon", "mm.bf16.neon"}


def test_a_feature_one_core_lacks_is_not_claimed() -> None:
    assert parse_features(f"{BF16_CPU}\n{PLAIN_CPU}\n") == {"isa.avx2"}


@pytest.mark.parametrize("text", ["", "processor : 0", "flags :", "flags : avx512f avx2"])
def test_what_is_not_stated_is_not_claimed(text: str) -> None:
    assert parse_features(text) == frozenset()


def test_the_best_level_comes_first_and_needs_all_it_says() -> None:
    assert [level.name for level in usable_levels(parse_features(BF16_CPU))] == [
        level.name for level in LEVELS
    ]
    assert [level.name for level in usable_levels(parse_features(PLAIN_CPU))] == ["avx2"]
    assert usable_levels({"mm.bf16.avx512"}) == ()


@pytest.mark.parametrize(
    ("flags", "feature"),
    [
        ("flags : amx_tile amx_bf16 amx_int8", "mm.bf16.amx"),
        ("flags : amx_tile amx_int8", "mm.int8.amx"),
        ("flags : amx_tile amx_fp16", "mm.fp16.amx"),
        ("flags : avx_vnni", "mm.int8.avx_vnni"),
        ("Features : asimd asimdhp", "mm.fp16.neon"),
        ("Features : asimd asimddp", "mm.int8.dot.neon"),
        ("Features : asimd i8mm", "mm.int8.neon"),
        ("Features : asimd sve sve2", "isa.sve2"),
    ],
)
def test_instructions_that_kernels_ask_for_have_names(flags: str, feature: str) -> None:
    assert feature in parse_features(flags)


def test_wide_dot_products_are_claimed_with_the_registers_they_are_compiled_for() -> None:
    assert "mm.int8.vnni" not in parse_features("flags : avx512f avx512_vnni")
