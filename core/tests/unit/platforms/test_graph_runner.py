"""A platform's graph runner, loaded or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dougong.contracts import GraphRunner, PluginError
from dougong.errors import ContractError
from dougong.platforms.graph_runner import load_graph_runner
from tests.support.graph_platform import GraphPlatform
from tests.support.recorded_graphs import RecordedGraphRunner


class WithoutRelease(GraphRunner):
    """Lacks a method, and misspells another."""

    def capture(self, key):  # type: ignore[no-untyped-def]  # a plugin's code
        return None

    def prepare_replays(self, metadata):  # type: ignore[no-untyped-def]  # a plugin's code
        return None


class OddSupport(RecordedGraphRunner):
    """Says what it captures in a way nobody understands."""

    support = "full"  # type: ignore[assignment]  # that is the fault


class Pointing(GraphPlatform):
    """Names whatever a test wants."""

    def __init__(self, answer: Callable[[], str | None]) -> None:
        self._answer = answer

    def get_graph_runner_cls(self) -> str | None:  # type: ignore[override]  # as the contract has it
        return self._answer()


def here(name: str) -> Callable[[], str]:
    return lambda: f"{__name__}:{name}"


def raising() -> str:
    raise KeyError("no such chip")


def test_the_class_is_given_or_none() -> None:
    assert load_graph_runner(GraphPlatform()) is RecordedGraphRunner
    assert load_graph_runner(Pointing(lambda: None)) is None


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (raising, PluginError, "failed to answer get_graph_runner_cls.*no such chip"),
        (here("Nowhere"), PluginError, "cannot be loaded from .*Nowhere"),
        (lambda: 3, PluginError, "cannot be loaded from 3"),
        (here("WithoutRelease"), ContractError, "replay.* is missing"),
        (here("Pointing"), ContractError, "does not derive from"),
        (here("OddSupport"), PluginError, "has 'full' as its support"),
    ],
)
def test_what_does_not_fit_is_the_plugins_fault(
    answer: Callable[[], str], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        load_graph_runner(Pointing(answer))
