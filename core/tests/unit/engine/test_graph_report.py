"""What ranks tell of their graphs, in words."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dougong.engine.graph_report import GraphReport, graph_report
from dougong.errors import PluginError
from dougong.executor import Executor

MIB = 1024**2


class Told:
    """An executor whose ranks tell these numbers."""

    def __init__(self, *ranks: dict[str, Any]) -> None:
        self._ranks = ranks

    def collect(self) -> tuple[dict[str, Any], ...]:
        return self._ranks


def numbers(**changes: Any) -> dict[str, Any]:
    plain = {"sizes": {"piecewise": [1, 8, 256]}, "num_bytes": 12 * MIB, "max_bytes": 99 * MIB}
    return {"graphs": {**plain, "dropped": [], **changes}}


def report_of(*ranks: dict[str, Any]) -> GraphReport | None:
    return graph_report(cast(Executor, Told(*ranks)))


def test_the_rank_whose_graphs_take_most_is_told() -> None:
    report = report_of(numbers(), numbers(num_bytes=13 * MIB), {"num_steps": 3})
    assert report is not None
    assert report.line() == "graphs: piecewise, 3 sizes up to 256; 13 MiB"
    assert report.warning() == ""


def test_each_kind_is_told_and_little_memory_too() -> None:
    report = report_of(numbers(sizes={"decode": [4], "full": [8, 16]}, num_bytes=2048))
    assert report is not None
    assert report.line() == "graphs: decode, 1 size, 4; full, 2 sizes up to 16; 2 KiB"


def test_ranks_that_tell_nothing_have_no_line() -> None:
    assert report_of({"num_steps": 3}, {}) is None


def test_what_did_not_fit_is_a_warning() -> None:
    report = report_of(numbers(dropped=["piecewise 512"]))
    assert report is not None
    assert "graphs piecewise 512 were not captured" in report.warning()
    assert f"graph_memory_bytes={99 * MIB} (99 MiB)" in report.warning()


@pytest.mark.parametrize("odd", [{"graphs": 3}, {"graphs": {"sizes": {}}}, numbers(sizes=[1])])
def test_numbers_that_nobody_can_read_are_the_plugins_fault(odd: dict[str, Any]) -> None:
    with pytest.raises(PluginError, match=r"collect\(\) tells of its graphs as"):
        report_of(odd)
