"""Rows of an op check: fixed ones, there because something passed without, then seeded ones."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.subject import Subject
from dougong_conformance.suite.op_under_test import OpUnderTest


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration of an op.

    Attributes:
        op: Its key.
        sizes: What differs from the op's usual sizes.
        tokens: Numbers of tokens that it is called with, one op after the other.
        because: Mutants and reports that need it.
    """

    op: str
    sizes: dict[str, Any]
    tokens: tuple[int, ...]
    because: tuple[str, ...]


NUM_SEEDED = 2
"""Seeded rows per entry."""


@cache
def all_rows() -> dict[str, tuple[Row, ...]]:
    """Requirement → its fixed rows, in order."""
    return {
        f"ops.{name}": tuple(_row(name, one) for one in rows)
        for name, rows in _tables()["ops"].items()
    }


@cache
def seeded_rows(id: str) -> tuple[Row, ...]:
    """Rows of a requirement whose sizes are drawn, the same on every machine."""
    name = id.partition(".")[2]
    return tuple(
        _drawn(name, table, Draw(f"seeded {id} {entry}", index))
        for entry, table in enumerate(_tables()["seeded"].get(name, ()))
        for index in range(NUM_SEEDED)
    )


@cache
def _tables() -> dict[str, Any]:
    text = files("dougong_conformance.kit").joinpath("rows.toml").read_text("utf-8")
    return tomllib.loads(text)


def _drawn(name: str, table: dict[str, Any], draw: Draw) -> Row:
    sizes = {key: _pick(value, draw) for key, value in table.items() if key != "op"}
    tokens = sorted({int(draw.integers(1, 34, 1)) for _ in range(3)})
    return Row(table.get("op", name), sizes, tuple(tokens), ())


def _pick(value: Any, draw: Draw) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) == 2:
        return int(draw.integers(value[0], value[1] + 1, 1))
    return value[int(draw.integers(0, len(value), 1))]


def ops_of(
    subject: Subject, judge: Judge, id: str, dtype: str
) -> Iterator[tuple[OpUnderTest, Row]]:
    """Every row of a requirement as an op with weights and inputs of its own.

    Args:
        subject: The plugin.
        judge: Of the case.
        id: The requirement.
        dtype: Compute dtype by name.
    """
    for index, row in enumerate((*all_rows()[id], *seeded_rows(id))):
        yield OpUnderTest(subject, judge, row.op, dtype, id=id, index=index, **row.sizes), row


def check_rows(subject: Subject, judge: Judge, id: str, dtype: str, *, bias: bool = False) -> None:
    """Every row of a requirement, every implementation that takes it, against the oracle."""
    for op, row in ops_of(subject, judge, id, dtype):
        op.check(row.tokens, bias=bias)


def _row(name: str, table: dict[str, Any]) -> Row:
    kept = dict(table)
    op, because = kept.pop("op", name), tuple(kept.pop("because"))
    tokens = tuple(kept.pop("tokens", (1, 2, 3, 7, 8)))
    return Row(op, kept, tokens, because)
