"""Collectives between devices: the default over the vendor's torch.distributed backend.

`TorchCommunicator` brings the methods, the deadlines, the watch over the peers and the abort. What
is left to a vendor is what only the vendor knows: the backend's name, its dtypes, and what a
process must have in its environment before the library loads. A library with collectives that
torch.distributed does not have is bound by overriding the methods one by one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import torch
from dougong.contracts import GroupOptions
from dougong.reference import TorchCommunicator

from dougong_sim.device import collectives


class SimCommunicator(TorchCommunicator):
    """One group over ``simccl``."""

    def __init__(self, options: GroupOptions, device: torch.device) -> None:
        """Join the group."""
        collectives.register()
        named = {"backend": collectives.BACKEND, **options.options}
        super().__init__(replace(options, options=named), device)

    def supported_dtypes(self, op: str) -> frozenset[str]:
        """As the library documents them: it adds up no bytes."""
        dtypes = super().supported_dtypes(op)
        return dtypes - {"uint8"} if op.startswith(("all_reduce", "reduce_scatter")) else dtypes

    @classmethod
    def rank_environment(cls, rank: int, size: int) -> Mapping[str, str]:
        """Devices that work by themselves: in lazy mode they work only while somebody waits, and
        two ranks that wait for something else would never meet."""
        if size > 1 and os.environ.get("SIM_MODE", "lazy") == "lazy":
            return {"SIM_MODE": "thread"}
        return {}
