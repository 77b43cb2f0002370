"""The tables of the full matrix; its processes run in the session ``mutants``."""

from __future__ import annotations

from dougong_conformance.selftest.matrix import Matrix, Row, columns
from dougong_conformance.selftest.mutant import all_mutants

GOOD = Row("", "", {"a": "pass", "b": "pass", "c": "fail"}, {}, 1.0)


def row(id: str, **ends: str) -> Row:
    return Row(id, all_mutants()[id].killer, ends, {}, 1.0)


def test_what_the_good_plugin_fails_too_is_no_kill() -> None:
    matrix = Matrix("sim", GOOD, (row("O01", a="fail", c="fail"),))
    assert matrix.kills(matrix.rows[0]) == ("a",)
    assert matrix.survivors() == ("O01",)


def test_sole_killers_and_redundant_checks_are_told_apart() -> None:
    matrix = Matrix("sim", GOOD, (row("O01", a="fail", b="fail"), row("O02", a="fail", b="pass")))
    assert matrix.sole_killers() == {"a": ("O02",)}
    assert matrix.redundant() == ("b",)
    assert matrix.idle() == ("c",)


def test_a_mutant_that_cannot_be_planted_is_listed_and_not_counted() -> None:
    matrix = Matrix("sim", GOOD, (row("A27"),))
    assert matrix.survivors() == ()
    text = matrix.as_markdown()
    assert "0 of 0 killed" in text
    assert "- A27" in text


def test_columns_are_quick_checks_and_the_named_killer() -> None:
    columns_of_one = columns(all_mutants()["O01"])
    assert columns_of_one[0].id == all_mutants()["O01"].killer, "it meets a fresh process"
    names = {one.id for one in columns_of_one}
    assert {"ops.rms_norm", "attention.decode"} <= names
    assert not any(name.startswith(("engine.", "worker.", "discovery.")) for name in names)
    by_name = {one.id for one in columns(all_mutants()["W01"])}
    assert all_mutants()["W01"].killer in by_name


def test_the_longest_profile_is_a_column_of_its_own_mutants_alone() -> None:
    def profiles(id: str) -> set[str]:
        return {one.profile for one in columns(all_mutants()[id])}

    assert "memory" in profiles("M01")
    assert "memory" not in profiles("O01")
