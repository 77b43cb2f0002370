"""What all parts of a communicator know of its group: members, words for errors, the library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from dougong.contracts import (
    CommunicatorTimeout,
    DeviceError,
    GroupOptions,
    PeerLost,
    UnsupportedError,
)


@dataclass(frozen=True, slots=True)
class Group:
    """Members of a group, and how errors speak of them.

    Ranks of arguments count within the group; those of messages are global.

    Attributes:
        options: As they were given.
        index: This process's rank within the group.
    """

    options: GroupOptions
    index: int

    @property
    def size(self) -> int:
        """Members."""
        return len(self.options.ranks)

    @property
    def peers(self) -> tuple[int, ...]:
        """All members but this one."""
        return tuple(rank for rank in range(self.size) if rank != self.index)

    @property
    def name(self) -> str:
        """``group tp of ranks 0, 1``."""
        return f"group {self.options.kind} of ranks {', '.join(map(str, self.options.ranks))}"

    def members(self, ranks: Iterable[int]) -> str:
        """``rank 3`` or ``ranks 1, 3``."""
        names = [str(self.options.ranks[rank]) for rank in sorted(ranks)]
        return f"rank{'s' if len(names) > 1 else ''} {', '.join(names)}"

    def error(self, kind: type[DeviceError], message: str) -> DeviceError:
        """An error of this rank."""
        return kind(message, rank=self.options.rank)


def kind_of(exc: BaseException) -> type[DeviceError] | None:
    """What a ``torch.distributed`` library means by its exception, told by its words.

    Returns:
        ``None`` where it speaks neither of time nor of a connection.
    """
    text = str(exc).lower()
    if any(word in text for word in ("timed out", "timeout")):
        return CommunicatorTimeout
    if any(word in text for word in ("peer", "connection", "socket", "broken pipe", "abort")):
        return PeerLost
    return None


def make_library(
    name: str, store: Store, group: Group, timeout: timedelta, device: torch.device
) -> Any:
    """The ``torch.distributed`` backend ``name`` for one group.

    Raises:
        UnsupportedError: Nobody registered it.
    """
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is not None:
        made = plugin.creator_fn(store, group.index, group.size, timeout)
        is_process_group = isinstance(made, dist.ProcessGroup)
        return made._get_backend(device) if is_process_group else made
    if name == "gloo":
        return dist.ProcessGroupGloo(store, group.index, group.size, timeout=timeout)
    raise UnsupportedError(
        f"torch.distributed knows no backend {name!r}; the platform's import_kernels() must "
        "register it before a group is made"
    )
