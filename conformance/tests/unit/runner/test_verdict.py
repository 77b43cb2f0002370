"""The verdict: every row of the table, and a table that rejects every broken engine."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.unit.runner.verdict_table import TABLE, Engine, Row, broken_engine, is_right

BROKEN = tomllib.loads(Path(__file__).with_name("broken_engines.toml").read_text("utf-8"))["broken"]


@pytest.mark.parametrize("one", TABLE, ids=[one.name for one in TABLE])
def test_a_run_gets_the_verdict_that_the_specification_asks_for(one: Row) -> None:
    assert is_right(one)


def test_the_table_has_more_than_twenty_three_cases_of_waivers() -> None:
    assert sum(one.name.startswith("waiver:") for one in TABLE) > 23


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_broken_engine_is_rejected_by_the_table(number: int) -> None:
    module, old, new = (BROKEN[number][name] for name in ("module", "old", "new"))
    engine = broken_engine(module, old, new)
    is_seen = any(not _is_right(one, engine) for one in TABLE)
    assert is_seen, f"nothing in the table sees {new!r} in the place of {old!r}"


def _is_right(one: Row, engine: Engine) -> bool:
    try:
        return is_right(one, engine)
    except Exception:  # noqa: BLE001 - a crash is no right verdict either
        return False
