"""Giving pages back while their tensor lives."""

from __future__ import annotations

from pathlib import Path

import torch

from dougong.cpu.native.pages import discard


def resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def test_discarded_pages_leave_memory_and_their_neighbours_stay() -> None:
    tensor = torch.ones(64 << 20, dtype=torch.uint8)
    before = resident_bytes()
    discard(tensor[100 : 60 << 20])
    assert before - resident_bytes() > 50 << 20
    assert (tensor[:100] == 1).all()
    assert (tensor[60 << 20 :] == 1).all()


def test_less_than_a_page_is_left_alone() -> None:
    tensor = torch.ones(8192, dtype=torch.uint8)
    discard(tensor[1:100])
    assert (tensor == 1).all()
