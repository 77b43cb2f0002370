from __future__ import annotations

import pytest
import torch
from dougong.contracts import GraphLevel, UnsupportedError

from dougong_rocm.graph import HipGraphRunner
from tests.plugin.hip_module import FakeHip

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def hip(monkeypatch: pytest.MonkeyPatch) -> FakeHip:
    module = FakeHip(("gfx942",))
    monkeypatch.setattr(torch, "cuda", module)
    return module


def test_a_piece_is_captured_and_replayed(hip: FakeHip) -> None:
    runner = HipGraphRunner(DEVICE)
    with runner.capture("a"):
        pass
    runner.replay("a")
    assert hip.told == [
        ("synchronize", DEVICE),
        ("begin", (0, 1), "thread_local"),
        ("end",),
        ("replay",),
    ]
    assert runner.memory_bytes() == 100
    runner.release("a")
    assert runner.memory_bytes() == 0
    assert HipGraphRunner.support.level is GraphLevel.PIECEWISE


def test_graphs_share_one_pool(hip: FakeHip) -> None:
    runner = HipGraphRunner(DEVICE)
    for key in "ab":
        with runner.capture(key):
            pass
    runner.release("a")
    assert runner.memory_bytes() == 200
    assert {call[1] for call in hip.told if call[0] == "begin"} == {(0, 1)}


@pytest.mark.parametrize(
    "text",
    [
        "HIP error: operation not permitted when stream is capturing\nSearch for ...",
        "HIP error: dependency created on uncaptured work; `hipErrorStreamCaptureIsolation'",
    ],
)
def test_what_cannot_be_captured_is_named(hip: FakeHip, text: str) -> None:
    runner = HipGraphRunner(DEVICE)
    told = pytest.raises(UnsupportedError, match="step 'a' cannot be captured: HIP error")
    with told, runner.capture("a"):
        raise RuntimeError(text)
    assert hip.told[-2:] == [("end",), ("reset",)]
    with runner.capture("a"):
        pass
    runner.replay("a")


def test_another_error_passes_and_leaves_no_graph(hip: FakeHip) -> None:
    runner = HipGraphRunner(DEVICE)
    with pytest.raises(ValueError, match="shapes"), runner.capture("a"):
        raise ValueError("shapes")
    assert hip.told[-1] == ("reset",)
    with pytest.raises(KeyError):
        runner.replay("a")
