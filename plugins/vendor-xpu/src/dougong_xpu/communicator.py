"""Collectives between Intel GPUs: torch's XCCL over oneCCL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
from dougong.contracts import GroupOptions, UnsupportedError
from dougong.reference import TorchCommunicator

from dougong_xpu.providers import TORCH_INDEX

BACKEND = "xccl"

_DTYPES = frozenset(
    {"float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"}
)


class XpuCommunicator(TorchCommunicator):
    """One group over XCCL, which is a part of torch and no registered backend.

    The library's own timeout is the default's share of each deadline, so that its error comes
    before the engine's. One that is given with ``backend_timeouts_s`` and is no shorter than the
    deadline is refused.

    Raises:
        UnsupportedError: A timeout of the library's is no shorter than the engine's deadline, or
            this torch was built without XCCL.
    """

    def __init__(self, options: GroupOptions, device: torch.device) -> None:
        """Join the group, and let oneCCL do once what it does at its first call."""
        _check_timeouts(options)
        super().__init__(options, device)
        try:
            self.all_reduce(torch.zeros(1, device=device))
        except BaseException:
            self.destroy()
            raise

    def make_library(self, store: Any, timeout: timedelta) -> Any:
        """XCCL's backend object.

        Raises:
            UnsupportedError: This torch was built without it.
        """
        from torch.distributed import distributed_c10d

        made_by = getattr(distributed_c10d, "ProcessGroupXCCL", None)
        if made_by is None:
            raise UnsupportedError(
                f"torch {torch.__version__} has no XCCL; the builds for Intel GPUs have it: "
                f"pip install torch --index-url {TORCH_INDEX}"
            )
        options = made_by.Options()
        options._timeout = timeout
        return made_by(store, self.rank, self.size, options)

    def supported_dtypes(self, op: str) -> frozenset[str]:
        """As oneCCL lists them; the same for every call."""
        return _DTYPES

    @classmethod
    def rank_environment(cls, rank: int, size: int) -> Mapping[str, str]:
        """What oneCCL reads when it is loaded: transport, and this rank's place on the machine.

        A transport that the user has set is left alone.
        """
        return {
            "CCL_ATL_TRANSPORT": os.environ.get("CCL_ATL_TRANSPORT", "ofi"),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(size),
            "UCX_MEMTYPE_CACHE": os.environ.get("UCX_MEMTYPE_CACHE", "n"),
        }


def _check_timeouts(options: GroupOptions) -> None:
    """A timeout of the library beyond the engine's deadline would let the wrong error come first.

    Raises:
        UnsupportedError: One is.
    """
    stated: Mapping[Any, float] = options.options.get("backend_timeouts_s", {})
    late = [
        f"{phase}: {float(stated[phase]):g} s of {limit:g} s"
        for phase, limit in options.deadlines_s.items()
        if phase in stated and float(stated[phase]) >= limit
    ]
    if late:
        raise UnsupportedError(
            f"XCCL's own timeout must end before the engine's deadline ({'; '.join(late)}): "
            "lower backend_timeouts_s, or raise the deadline"
        )
