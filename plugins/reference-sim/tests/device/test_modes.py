"""When queued work runs, and that it gives the CPU's values whenever it does."""

from __future__ import annotations

import time

import pytest
import torch
from torch.nn import functional

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from tests.device.conftest import Timing


def _step(device: str) -> torch.Tensor:
    """The operators of one decoder layer with a paged cache."""
    generator = torch.Generator().manual_seed(1)

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    hidden, weight, cache = made(3, 8), made(24, 8), made(16, 2, 4)
    slots = torch.tensor([5, 2, 9]).to(device)
    normed = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
    query, key, value = functional.linear(normed, weight).view(3, 3, 2, 4).unbind(1)
    cache.index_copy_(0, slots, key)
    keys = cache.index_select(0, slots)
    scores = torch.einsum("qhd,khd->hqk", query, keys)
    mask = torch.arange(3).to(device)[None] <= torch.arange(3).to(device)[:, None]
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), -1)
    attended = torch.einsum("hqk,khd->qhd", weights, value)
    fused = functional.scaled_dot_product_attention(
        query.transpose(0, 1), keys.transpose(0, 1), value.transpose(0, 1), is_causal=True
    )
    logits = functional.silu(torch.cat([attended, fused.transpose(0, 1)], -1).reshape(3, -1))
    return torch.cat([logits, logits.argmax(-1, keepdim=True).float()], -1)


def test_a_model_step_equals_the_cpu(any_mode: Timing) -> None:
    torch.testing.assert_close(_step("sim").cpu(), _step("cpu"))


def test_lazy_work_runs_when_it_is_waited_for() -> None:
    x = torch.ones(4, device="sim")
    y = x + 1
    assert control.pending() == 2
    assert y.sum().item() == 8
    assert control.pending() == 0


def test_eager_work_has_run_when_the_call_returns() -> None:
    control.set_mode("eager")
    y = torch.ones(4, device="sim") + 1
    assert control.pending() == 0
    assert control.host_view(y).tolist() == [2, 2, 2, 2]


def test_delayed_work_waits_for_its_age_or_for_somebody_who_waits() -> None:
    control.set_mode("thread", delay_us=60_000_000)
    y = torch.ones(4, device="sim") + 1
    time.sleep(0.01)
    assert control.pending() == 2
    sim.synchronize()
    assert control.host_view(y).tolist() == [2, 2, 2, 2]


def test_a_worker_runs_what_nobody_waits_for() -> None:
    control.set_mode("thread")
    done = sim.Event()
    torch.ones(4, device="sim")
    done.record()
    deadline = time.monotonic() + 30
    while not done.query():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_change_of_mode_runs_what_is_queued() -> None:
    torch.ones(4, device="sim")
    assert control.pending() == 1
    control.set_mode("thread", delay_us=2000)
    assert control.pending() == 0
    assert control.mode() == ("thread", 2000)


def test_a_host_that_polls_an_event_makes_progress(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    for _ in range(5):
        x = x + 1
    done = sim.Event()
    done.record()
    deadline = time.monotonic() + 30
    while not done.query():
        assert time.monotonic() < deadline
    assert control.host_view(x).tolist() == [6, 6, 6, 6]


def test_a_very_long_lazy_queue_shortens_itself() -> None:
    x = torch.zeros(1, device="sim")
    for _ in range(5000):
        x.add_(1)
    assert control.pending() < 5000
    assert x.item() == 5000


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'fast' is none of"):
        control.set_mode("fast")  # type: ignore[arg-type]  # that is the point
