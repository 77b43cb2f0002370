"""Cutting a distribution before a token is drawn."""

from __future__ import annotations

import torch

from tests.references.refusals import HALVES, require, require_dtype


def npu_top_k_top_p(
    logits: torch.Tensor, p: torch.Tensor | None = None, k: torch.Tensor | None = None
) -> torch.Tensor:
    """Logits with what was cut at ``-inf``; ``p`` in their dtype, ``k`` int32 from 1 to 1024.

    Sorted upwards: what lies below the ``k``-th highest is cut, then the lower part whose
    probability sums to at most ``1 - p``; the highest always stays.
    """
    op = "npu_top_k_top_p"
    require(p is not None or k is not None, op, "p and k cannot both be missing")
    require_dtype(op, (*HALVES, torch.float32), logits=logits)
    ordered, order = logits.sort(dim=-1, stable=True)
    if k is not None:
        require(k.dtype == torch.int32, op, f"k is {k.dtype}; takes int32")
        if k.device.type == "cpu":  # elsewhere this would wait for the device
            limit = min(1024, logits.shape[1])
            require(bool(((k >= 1) & (k <= limit)).all()), op, f"k must lie in 1 to {limit}")
        lowest = ordered.gather(1, (logits.shape[1] - k.to(torch.int64)).unsqueeze(1))
        ordered = ordered.masked_fill(ordered < lowest, -torch.inf)
    if p is not None:
        require(p.dtype == logits.dtype, op, f"p is {p.dtype}, logits {logits.dtype}")
        summed = ordered.softmax(dim=-1).cumsum(dim=-1)
        cut = summed <= (1 - p).unsqueeze(1)
        last = torch.arange(logits.shape[1], device=logits.device) == logits.shape[1] - 1
        ordered = ordered.masked_fill(cut.logical_and(last.logical_not()), -torch.inf)
    return torch.empty_like(logits).scatter_(1, order, ordered)
