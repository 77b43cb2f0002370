"""Whether the device still computes: asked after every case that did not pass."""

from __future__ import annotations

from typing import Any

from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

SIZE = 8


@procedure("health.probe")
def probe(session: Session) -> Any:
    """A small product of whole numbers, exact in any dtype's accumulation; on the CPU."""
    import torch

    left = torch.arange(SIZE * SIZE, dtype=torch.float32).reshape(SIZE, SIZE).remainder(5)
    product = left.to(session.device) @ left.t().contiguous().to(session.device)
    session.runtime.synchronize()
    return product.cpu()
