"""Requirements, checks and mutants name one another, both ways."""

from __future__ import annotations

import pytest

from dougong_conformance.check import all_checks
from dougong_conformance.requirements import all_requirements
from dougong_conformance.selftest.mutant import all_mutants
from dougong_conformance.suite.op_kinds import KINDS
from dougong_conformance.suite.op_rows import all_rows

PROFILES = ("ops", "attention", "kv", "sampling", "quantization", "lora")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_row_has_a_check_unless_it_is_provisional_and_every_check_a_row(
    profile: str,
) -> None:
    rows = {one.id for one in all_requirements().values() if one.profile == profile}
    provisional = {one.id for one in all_requirements().values() if one.is_provisional}
    checks = {one.id for one in all_checks().values() if one.profile == profile}
    assert rows - provisional <= checks
    assert checks <= rows


@pytest.mark.parametrize("profile", PROFILES)
def test_a_row_kills_what_names_it(profile: str) -> None:
    for one in all_requirements().values():
        if one.profile == profile:
            naming = {m.id for m in all_mutants().values() if m.killer == one.id}
            assert naming == set(one.kills), one.id


@pytest.mark.parametrize("profile", PROFILES)
def test_every_check_kills_something_or_says_whom_it_repeats(profile: str) -> None:
    for one in all_requirements().values():
        if one.profile == profile and not one.is_provisional:
            assert one.kills or one.redundant_with, one.id
        if one.redundant_with:
            assert one.redundant_with in all_requirements(), one.id


def test_what_may_end_as_not_claimed_names_a_capability() -> None:
    optional = {"ops.layer_norm", "ops.moe_route", "ops.moe_experts", "kv.saturation"}
    for id in optional | {"attention.sliding_window", "lora.scaling"}:
        assert all_requirements()[id].capability, id


def test_the_mutants_of_the_first_catalogue_are_here() -> None:
    numbers = {"O": 35, "A": 24, "K": 9, "P": 9, "Q": 8, "L": 4}
    wanted = {f"{letter}{n:02}" for letter, count in numbers.items() for n in range(1, count + 1)}
    assert wanted <= all_mutants().keys()


def test_every_fixed_row_says_why_it_is_there_and_belongs_to_a_check() -> None:
    known = all_mutants().keys()
    for id, rows in all_rows().items():
        assert id in all_checks()
        for row in rows:
            assert row.because, id
            assert all(one in known or one[0] in "VW" or "://" in one for one in row.because), id
            assert row.op in KINDS


def test_every_op_of_the_catalogue_has_a_kind() -> None:
    from dougong.ops import OP_KEYS

    assert KINDS.keys() == OP_KEYS


def test_what_may_be_overwritten_is_what_the_catalogue_allows() -> None:
    from dougong.ops import OPS

    for key, kind in KINDS.items():
        assert kind.may_mutate == OPS[key].may_mutate, key
