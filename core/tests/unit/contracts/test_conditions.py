from __future__ import annotations

import pytest

from dougong.contracts import (
    AtLeast,
    AtMost,
    Between,
    BindRequest,
    MultipleOf,
    Needs,
    OneOf,
    token_bounds,
)
from dougong.contracts.conditions import version_meets

DEVICE = BindRequest(
    dtype="bfloat16",
    features=frozenset({"mm.bf16.acme"}),
    limits={"shared_memory_bytes": 65536},
    driver_version="25.18.1-rc2",
    runtime_version="8.1",
    environment={"ACME_FAST": "1"},
    loaded=frozenset({"acme-kernels"}),
    missing={"acme-extra": "no such file"},
)


def _reason(needs: Needs, properties: dict[str, int | str | bool] | None = None) -> str:
    return needs.check(DEVICE, properties or {}).reason


def _reason_on(device: BindRequest, needs: Needs) -> str:
    return needs.check(device, {}).reason


def test_a_condition_without_parts_always_holds() -> None:
    assert Needs().check(DEVICE, {})
    assert str(Needs()) == "always"


@pytest.mark.parametrize(
    ("needs", "holds"),
    [
        (Needs(dtype={"bfloat16"}), True),
        (Needs(dtype="float32"), False),
        (Needs(features={"mm.bf16.acme"}), True),
        (Needs(features={"mm.bf16.acme", "fp8.e4m3"}), False),
        (Needs(library="acme-kernels"), True),
        (Needs(library="acme-extra"), False),
        (Needs(driver=">=25.18"), True),
        (Needs(driver=">=25.18.2"), False),
        (Needs(runtime=">=8,<9"), True),
        (Needs(runtime=">8.1"), False),
        (Needs(env={"ACME_FAST": "1"}), True),
        (Needs(env={"ACME_FAST": "0"}), False),
        (Needs(limits={"shared_memory_bytes": AtLeast(65536)}), True),
        (Needs(limits={"shared_memory_bytes": AtLeast(65537)}), False),
        (Needs(limits={"registers": AtLeast(1)}), False),
        (Needs(hidden_size=MultipleOf(64)), True),
        (Needs(hidden_size=MultipleOf(60)), False),
        (Needs(hidden_size=AtMost(575)), False),
        (Needs(hidden_size=Between(576, 576)), True),
        (Needs(hidden_size={576, 1024}), True),
        (Needs(activation="silu"), True),
        (Needs(activation={"gelu"}), False),
        (Needs(has_bias=False), True),
        (Needs(has_bias=0), False),  # a number is not an answer to yes or no
        (Needs(head_dim=64), False),  # the op does not state it
    ],
)
def test_each_part_is_asked_and_an_unstated_fact_makes_it_false(needs: Needs, holds: bool) -> None:
    properties: dict[str, int | str | bool] = {
        "hidden_size": 576, "activation": "silu", "has_bias": False,
    }  # fmt: skip

    assert bool(needs.check(DEVICE, properties)) is holds


def test_a_refusal_says_what_was_found_and_what_is_taken() -> None:
    needs = Needs(
        dtype={"float16"}, driver=">=26", env={"ACME_TURBO": "1"}, hidden_size=MultipleOf(128)
    )

    reason = _reason(needs, {"hidden_size": 576})

    assert "dtype bfloat16; takes float16" in reason
    assert "needs driver >=26, found 25.18.1-rc2" in reason
    assert "available, off: set ACME_TURBO=1 (now not set)" in reason
    assert "hidden_size 576; takes multiples of 128" in reason


def test_a_missing_library_brings_its_own_reason() -> None:
    assert _reason(Needs(library="acme-extra")) == "needs acme-extra: no such file"


def test_a_library_nobody_has_tried_yet_holds_for_now() -> None:
    untried = BindRequest(dtype="bfloat16")

    assert Needs(library="acme-extra").check(untried, {})


def test_a_platform_whose_libraries_are_all_missing_has_none() -> None:
    none_loaded = BindRequest(dtype="bfloat16", loaded=frozenset())

    assert _reason_on(none_loaded, Needs(library="acme")) == "needs acme: it was not loaded"


def test_equal_conditions_are_equal_and_hash_alike_however_they_were_written() -> None:
    one = Needs(dtype={"bfloat16", "float16"}, hidden_size={64, 128}, activation="silu")
    other = Needs(
        activation=OneOf("silu"), hidden_size=OneOf(128, 64), dtype=["float16", "bfloat16"]
    )

    assert one == other
    assert hash(one) == hash(other)
    assert one != Needs(dtype={"bfloat16"})


def test_a_condition_prints_its_parts_in_words() -> None:
    needs = Needs(dtype={"bfloat16"}, library="acme", hidden_size=MultipleOf(64))

    assert str(needs) == "dtype bfloat16, library acme, hidden_size multiples of 64"


@pytest.mark.parametrize("bound", ["2.0", ">=", "=>2", ">=2.x", "~=2"])
def test_a_malformed_bound_on_a_version_is_refused_where_it_is_written(bound: str) -> None:
    with pytest.raises(ValueError, match="no bound on a version"):
        Needs(driver=bound)


@pytest.mark.parametrize(
    ("version", "bound", "meets"),
    [
        ("535.104.5", ">=535.104", True),
        ("6.8.0-45-generic", ">=6.8,<7", True),
        ("v25.1", ">=25.1", True),
        ("25.10", ">25.9", True),  # parts are numbers, not text
        ("25", "==25.0", True),
        ("", ">=0", False),
        ("unknown", ">=0", False),
    ],
)
def test_versions_are_compared_part_by_part_and_an_unknown_one_meets_nothing(
    version: str, bound: str, meets: bool
) -> None:
    assert version_meets(version, bound) is meets


def test_constraints_that_hold_for_nothing_are_refused() -> None:
    for make in (lambda: Between(2, 1), lambda: MultipleOf(0), lambda: OneOf()):
        with pytest.raises(ValueError, match="holds for no"):
            make()


def test_token_ranges_have_bounds() -> None:
    assert token_bounds(None) == (1, None)
    assert token_bounds(AtMost(512)) == (1, 512)
    assert token_bounds(AtLeast(513)) == (513, None)
    assert token_bounds(Between(2, 8)) == (2, 8)
