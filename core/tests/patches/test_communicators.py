"""Collectives that a library lacks, made of those that it has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dougong.contracts import Communicator
from dougong.platforms import load_class, open_platform
from tests.patches.conftest import Outside
from tests.support.ranks import group_options, in_threads
from tests.support.stub_plugins import PLATFORM

OWN = """
    def get_device_communicator_cls(self): return "{package}.platform:Own"


from dougong.contracts import UnsupportedError
from dougong.reference import TorchCommunicator


class Own(TorchCommunicator):
    # Its library adds no 64-bit integers; it gathers them, and a rank adds up what it got.
    def all_reduce(self, tensor):
        if str(tensor.dtype) != "torch.int64":
            return super().all_reduce(tensor)
        count("emulated")
        return self.all_gather(tensor.unsqueeze(0)).sum(0)
"""


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_dtype_that_the_library_lacks_is_emulated_in_the_vendors_class(
    outside: Outside, tmp_path: Path, dtype: torch.dtype
) -> None:
    outside.platform(PLATFORM + OWN)
    loaded = open_platform("acme")
    target = loaded.platform.get_device_communicator_cls()
    communicator_cls = load_class(target, Communicator, loaded.selection.row)

    def rank(number: int) -> list[int]:
        group = communicator_cls(
            group_options(number, (0, 1), tmp_path / "meeting"), torch.device("cpu")
        )
        try:
            total: torch.Tensor = group.all_reduce(torch.tensor([1 << 40, number]).to(dtype))
            return [int(one) for one in total.tolist()]
        finally:
            group.barrier()
            group.destroy()

    assert in_threads((0, 1), rank) == [[1 << 41, 1]] * 2
    assert outside.counts().get("emulated", 0) == (2 if dtype == torch.int64 else 0)
