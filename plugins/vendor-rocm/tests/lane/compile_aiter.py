"""Compiles AITER's unified attention for its families: ``python -m tests.lane.compile_aiter OUT``.

Tiles and stages are those that AITER's launcher picks for each block size.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from dougong.contracts import read_claims

from tests.lane import no_gpu, stand_in_rocm

TAKEN = (16, 32, 64)
BEYOND = (("gfx942", 128),)
HEAD_SIZES = (64, 128, 256)
STEPS = {"decode": (1, 400), "long decode": (1, 4000), "prefill": (300, 300)}
"""Most query tokens and most tokens of a sequence: each makes the launcher choose otherwise."""
_MODULE = "aiter.ops.triton.unified_attention"
_KERNELS = ("kernel_unified_attention_2d", "kernel_unified_attention_3d", "reduce_segments")


def compile_one(arch: str, block_size: int, head_size: int, step: str) -> dict[str, Any]:
    """What a step launches, compiled."""
    no_gpu.activate(arch)
    launcher = importlib.import_module(_MODULE)
    made: list[Any] = []
    kernels = {name: getattr(launcher, name) for name in _KERNELS}
    for name, kernel in kernels.items():
        setattr(launcher, name, _Recorder(kernel, made))
    try:
        _call(launcher, block_size, head_size, *STEPS[step])
    finally:
        for name, kernel in kernels.items():
            setattr(launcher, name, kernel)
    limit = read_claims("dougong_rocm", arch).limits["rocm.lds_bytes"]
    return {
        "arch": arch,
        "block_size": block_size,
        "head_size": head_size,
        "step": step,
        "kernels": len(made),
        "shared": max(int(one.metadata.shared) for one in made),
        "limit": limit,
    }


class _Recorder:
    """Stands where the kernel is launched, and compiles instead."""

    def __init__(self, kernel: Any, made: list[Any]) -> None:
        self._kernel = kernel
        self._made = made

    def __getitem__(self, grid: Any) -> Any:
        def compiled(**arguments: Any) -> None:
            self._made.append(self._kernel.warmup(grid=(1,), **arguments))

        return compiled


def _call(launcher: Any, block_size: int, head_size: int, queries: int, tokens: int) -> None:
    """Two sequences of one length."""
    import torch

    dtype = torch.bfloat16
    q = torch.empty(2 * queries, 8, head_size, dtype=dtype)
    cache = torch.empty(8, block_size, 2, head_size, dtype=dtype)
    starts = torch.arange(3, dtype=torch.int32) * queries
    launcher.unified_attention(
        q, cache, cache, torch.empty_like(q), cu_seqlens_q=starts, max_seqlen_q=queries,
        seqused_k=torch.full((2,), tokens, dtype=torch.int32), max_seqlen_k=tokens,
        softmax_scale=0.1, causal=True, window_size=(-1, 0),
        block_table=torch.zeros(2, 8, dtype=torch.int32), softcap=0.0,
        q_descale=None, k_descale=None, v_descale=None,
    )  # fmt: skip


def main(out: str) -> None:
    """Write ``{"taken": [...], "refused": [...]}``."""
    os.environ |= stand_in_rocm.environment()
    taken = [
        compile_one(arch, block_size, head_size, step)
        for arch in ("gfx942", "gfx950")
        for block_size in TAKEN
        for head_size in HEAD_SIZES
        for step in STEPS
    ]
    refused = [compile_one(arch, size, max(HEAD_SIZES), "decode") for arch, size in BEYOND]
    Path(out).write_text(json.dumps({"taken": taken, "refused": refused}, indent=1), "utf-8")
    sys.stdout.flush()
    os._exit(0)  # torch cannot undo one of AITER's names at exit, and says so


if __name__ == "__main__":
    main(*sys.argv[1:])
