"""Collectives between devices, by HCCL through ``torch.distributed``.

`TorchCommunicator` brings the methods, the deadlines, the watch over the peers and the abort. Here
is what HCCL needs beside that: its own options, deadlines beyond its timeout, and what it or a chip
does not have made of what it has.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from dougong.contracts import GroupKind, GroupOptions
from dougong.reference import TorchCommunicator
from torch._C._distributed_c10d import Store, _DistributedBackendOptions

from dougong_ascend.families import family_of_soc
from dougong_ascend.timeouts import exec_timeout_s, group_timeouts, settled_deadlines

BACKEND = "hccl"
BUFFER_MIB = 200
"""Of device memory for each group; HCCL's own default."""
DATA_BUFFER_MIB = 50
"""Of groups that exchange a few numbers per step."""

_ALLOCATOR_ENV = "PYTORCH_NPU_ALLOC_CONF"
_SUMMED = ("all_reduce", "reduce_scatter")


class AscendCommunicator(TorchCommunicator):
    """One group over HCCL.

    Of ``GroupOptions.options`` it reads what `TorchCommunicator` does, with ``hccl`` as the
    backend, and

    * ``hccl_buffer_mib``: Device memory of the group, MiB; 200, and 50 for data parallelism.
    * ``emulates``: Collectives that this chip has for no dtype or not for all: ``True`` on 310P.
      Found out if absent.

    Raises:
        ConfigError: A deadline is not longer than HCCL's own timeout.
    """

    def __init__(self, options: GroupOptions, device: torch.device) -> None:
        named = {"backend": BACKEND, **options.options}
        deadlines = options.deadlines_s
        if named["backend"] == BACKEND:
            vendor_s = exec_timeout_s()
            deadlines = settled_deadlines(deadlines, vendor_s)
            named.setdefault("backend_timeouts_s", group_timeouts(deadlines, vendor_s))
        stated = named.pop("emulates", None)
        self._emulates = _is_310p(device) if stated is None else bool(stated)
        super().__init__(replace(options, options=named, deadlines_s=deadlines), device)

    def make_library(self, store: Store, timeout: timedelta) -> Any:
        """HCCL with options of this group: torch-npu's entry takes more than other backends'."""
        plugin = dist.Backend._plugins.get(BACKEND.upper())
        if self.options.options["backend"] != BACKEND or plugin is None or not plugin.extended_api:
            return super().make_library(store, timeout)
        opened = _DistributedBackendOptions()
        opened.store = store
        opened.group_rank, opened.group_size = self.rank, self.size
        opened.timeout = timeout
        opened.global_ranks_in_group = list(self.options.ranks)
        opened.group_id = self._hccl_name
        return plugin.creator_fn(opened, self._hccl_options())

    @property
    def _hccl_name(self) -> str:
        """The same on every rank, and no other group's: HCCL keeps groups apart by it. It takes
        127 characters, so ranks and meeting place are in it as a number."""
        options = self.options
        whole = zlib.crc32(f"{options.ranks} {options.init_method}".encode())
        return f"dougong-{options.kind}-{options.ranks[0]}-{self.size}-{whole:08x}"

    def supported_dtypes(self, op: str) -> frozenset[str]:
        """As the library documents them: no float64, and sums of no bytes without a sign."""
        dtypes = super().supported_dtypes(op) - {"float64"}
        return dtypes - {"uint8"} if op.startswith(_SUMMED) else dtypes

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """In a copy; on 310P sums of int64 are made of what all ranks have."""
        if not (self._emulates and tensor.dtype is torch.int64):
            return super().all_reduce(tensor)
        parts = self.all_gather(tensor.unsqueeze(0))
        return parts.sum(dim=0, dtype=torch.int64)

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        """In place; on 310P every rank gets every tensor and keeps one."""
        if not self._emulates:
            return super().broadcast(tensor, src)
        tensor.copy_(self.all_gather(tensor.unsqueeze(0))[src])
        return tensor

    def gather(self, tensor: torch.Tensor, dst: int = 0, dim: int = 0) -> torch.Tensor | None:
        """HCCL has none: every rank gets all parts, and ``dst`` keeps them."""
        joined = self.all_gather(tensor, dim)
        return joined if self.rank == dst else None

    @classmethod
    def rank_environment(cls, rank: int, size: int) -> Mapping[str, str]:
        """Memory in segments that can grow, as groups of ranks fragment it; not where the operator
        has set up the allocator."""
        if size > 1 and _ALLOCATOR_ENV not in os.environ:
            return {_ALLOCATOR_ENV: "expandable_segments:True"}
        return {}

    def _hccl_options(self) -> Any:
        vendor: Any = importlib.import_module("torch_npu._C._distributed_c10d")
        kind = self.options.kind
        default = DATA_BUFFER_MIB if kind is GroupKind.DATA else BUFFER_MIB
        made = vendor.ProcessGroupHCCL.Options()
        made.hccl_config = {
            "hccl_buffer_size": int(self.options.options.get("hccl_buffer_mib", default)),
            "group_name": self._hccl_name,
        }
        return made


def _is_310p(device: torch.device) -> bool:
    module = torch.get_device_module(device.type)
    ask = getattr(module, "get_soc_version", None)  # absent where another device plays this one
    return ask is not None and family_of_soc(int(ask())) == "310p"
