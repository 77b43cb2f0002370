"""Collectives between GPUs: RCCL, which torch calls ``nccl`` on this vendor's devices too.

`TorchCommunicator` brings the methods, the deadlines, the watch over the peers and the abort. Here
is what only this vendor's library needs: how it is made, and that it leaves the process alone.

torch watches RCCL itself. By default its watchdog ends the whole process when a collective takes
too long, and a second one ends it when the first seems stuck: the engine would see a worker die,
and not which rank did not come. So both are told, by environment, only to give the collective up.
Then the error comes to whoever waits, and the core's own deadline, which is longer, is the last
word.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from dougong.contracts import ConfigError, DeadlinePhase, GroupOptions, UnsupportedError
from dougong.reference import TorchCommunicator

BACKEND = "nccl"
RANK_ENVIRONMENT: Mapping[str, str] = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2",  # abort the library's communicator, not the process
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # no second watchdog that ends the process
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",  # which waits for the dump before the error is told
    "TORCH_NCCL_BLOCKING_WAIT": "0",  # wait() makes the stream wait, never the host
}


class RcclCommunicator(TorchCommunicator):
    """One group over RCCL.

    Beside the options of `TorchCommunicator` it reads ``is_high_priority_stream`` (``False``).
    """

    def __init__(self, options: GroupOptions, device: torch.device) -> None:
        """Join the group.

        Raises:
            ConfigError: A timeout of the library is not shorter than the engine's deadline.
        """
        _check_timeouts(options)
        super().__init__(options, device)

    def make_library(self, store: Any, timeout: timedelta) -> Any:
        """RCCL's process group of torch; made here, since torch keeps no maker for it.

        Raises:
            UnsupportedError: This torch has none.
        """
        if self.options.options.get("backend", BACKEND) != BACKEND:
            return super().make_library(store, timeout)
        if not dist.is_nccl_available():
            raise UnsupportedError(
                "this torch was built without RCCL (torch.distributed.is_nccl_available() is "
                "false); install torch's own wheel for ROCm"
            )
        library = dist.ProcessGroupNCCL
        settings = library.Options()
        settings._timeout = timeout
        settings.is_high_priority_stream = bool(
            self.options.options.get("is_high_priority_stream", False)
        )
        return library(store, self.rank, self.size, settings)

    @classmethod
    def rank_environment(cls, rank: int, size: int) -> Mapping[str, str]:
        """For every rank of a group of several; read when RCCL is made."""
        return RANK_ENVIRONMENT if size > 1 else {}


def _check_timeouts(options: GroupOptions) -> None:
    """The library's own error must come first: it names what it waited for."""
    given = options.options.get("backend_timeouts_s", {})
    late = [
        f"{phase}: {given[phase]:g} s of RCCL, {options.deadlines_s[phase]:g} s of the engine"
        for phase in DeadlinePhase
        if phase in given
        and phase in options.deadlines_s
        and given[phase] >= options.deadlines_s[phase]
    ]
    if late:
        raise ConfigError(
            "RCCL's own timeout must be shorter than the engine's deadline, so that its error "
            f"comes first; make the one shorter or the other longer: {'; '.join(late)}"
        )
