"""The KV cache itself: which bytes a write changes."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.drivers.attention import make_layer, write
from dougong_conformance.drivers.kv_memory import FINITE
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("kv.write")
def write_blocks(
    session: Session,
    *,
    backend: str,
    request: dict[str, Any],
    num_blocks: int,
    writes: list[dict[str, torch.Tensor]],
    is_split: bool = True,
) -> list[dict[str, list[torch.Tensor]]]:
    """Write into a cache full of numbers; the cache as it was before, and after each write.

    Returns:
        Per moment ``"blocks"``, uint8 ``[num_blocks, bytes]`` of each buffer, and ``"everything"``,
        all its bytes with the gaps between blocks.
    """
    layer = make_layer(session, backend, request, 1.0, num_blocks, fill=FINITE)
    found = [_state(layer.memory)]
    with session.runtime.inference_mode():
        for one in writes:
            write(layer, one, is_split=is_split)
            session.runtime.synchronize()
            found.append(_state(layer.memory))
    return found


def _state(memory: Any) -> dict[str, list[torch.Tensor]]:
    return {"blocks": memory.blocks(), "everything": memory.everything()}
