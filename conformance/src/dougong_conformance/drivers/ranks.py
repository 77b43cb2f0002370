"""What a rank's process needs before it starts."""

from __future__ import annotations

import importlib

from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("ranks.environments")
def environments(session: Session, size: int) -> list[dict[str, str]]:
    """Variables by rank, as the platform's communicator declares them; nothing is set here."""
    module, _, name = session.platform.get_device_communicator_cls().partition(":")
    communicator = getattr(importlib.import_module(module), name)
    return [dict(communicator.rank_environment(rank, size)) for rank in range(size)]
