"""Random numbers: repeatable, and never a reason for the host to wait."""

from __future__ import annotations

import torch

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from tests.device.conftest import Timing


def _draw() -> torch.Tensor:
    return torch.stack([torch.rand(4, device="sim"), torch.randn(4, device="sim")])


def test_a_seed_repeats_the_numbers(any_mode: Timing) -> None:
    torch.manual_seed(7)
    first = _draw().cpu()
    second = _draw().cpu()
    torch.manual_seed(7)
    assert torch.equal(_draw().cpu(), first)
    assert not torch.equal(first, second)


def test_seeding_waits_for_nothing() -> None:
    with control.forbid_implicit_sync():
        first = torch.rand(4, device="sim")
        torch.manual_seed(1)
        state = sim.get_rng_state()
        second = torch.rand(4, device="sim")
        sim.set_rng_state(state)
        third = torch.rand(4, device="sim")
    assert control.pending() == 3
    assert not torch.equal(first.cpu(), second.cpu())
    assert torch.equal(second.cpu(), third.cpu())


def test_a_generator_of_ones_own_is_independent() -> None:
    mine = torch.Generator("sim").manual_seed(5)
    torch.manual_seed(3)
    default = torch.rand(4, device="sim").cpu()
    torch.manual_seed(3)
    drawn = torch.rand(4, device="sim", generator=mine).cpu()
    assert torch.equal(torch.rand(4, device="sim").cpu(), default)
    mine.manual_seed(5)
    assert torch.equal(torch.rand(4, device="sim", generator=mine).cpu(), drawn)
    twin = torch.Generator("sim")
    twin.set_state(mine.get_state())
    assert torch.equal(
        torch.rand(4, device="sim", generator=twin).cpu(),
        torch.rand(4, device="sim", generator=mine).cpu(),
    )


def test_devices_draw_from_generators_of_their_own() -> None:
    torch.manual_seed(3)
    first = torch.rand(4, device="sim:0").cpu()
    torch.manual_seed(3)
    torch.rand(4, device="sim:1")
    assert torch.equal(torch.rand(4, device="sim:0").cpu(), first)


def test_a_generator_of_the_cpu_is_refused() -> None:
    import pytest

    with pytest.raises(RuntimeError, match=r"generator of device|Expected a 'sim'"):
        torch.rand(4, device="sim", generator=torch.Generator())


def test_draws_have_the_right_distribution() -> None:
    x = torch.empty(20_000, device="sim").exponential_()
    assert abs(x.mean().item() - 1) < 0.05
