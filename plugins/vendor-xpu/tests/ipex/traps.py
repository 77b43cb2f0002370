"""What reads or writes outside a cache, each tried in a process of its own.

    python -m tests.ipex.traps NAME ...

One process imports the extension and forks once per name; it prints, per name, how its child ended.
Caches lie between guards, so that an access outside ends the child whatever else is in memory.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from dougong.contracts import AttentionBackend
from dougong_conformance.kit.oracle.attention import AttentionTerms
from dougong_conformance.kit.paged import Geometry

from tests.attention_layer import Layer
from tests.ipex.guarded import guarded_zeros

ROOT = Path(__file__).parents[2]
NUM_BLOCKS, KV_HEADS, BLOCK, DIM = 8, 2, 16, 32
FAR = 4 * NUM_BLOCKS * BLOCK
"""A slot behind the cache, and within its guard."""


def outcomes(names: Sequence[str]) -> dict[str, int]:
    """Name → how its child ended: 0, an exit status, or a signal below zero."""
    command = [sys.executable, "-m", "tests.ipex.traps", *names]
    # One thread: a forked child has no others to wait for.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def _rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(count, KV_HEADS, DIM), torch.full((count, KV_HEADS, DIM), 2.0)


def _raw(shape: tuple[int, ...], slots: list[int]) -> None:
    modules = importlib.import_module("intel_extension_for_pytorch.llm.modules")
    key_cache, value_cache = guarded_zeros(shape), guarded_zeros(shape)
    k, v = _rows(len(slots))
    modules.PagedAttention.reshape_and_cache(k, v, key_cache, value_cache, torch.tensor(slots))


_SHAPE = (NUM_BLOCKS, KV_HEADS, BLOCK, DIM)
_DOCUMENTED_SHAPE = (NUM_BLOCKS, BLOCK, KV_HEADS, DIM)


def _layer() -> Layer:
    """Of zeros, with the plugin's backend."""
    from dougong_xpu import ipex_library
    from dougong_xpu.ipex_attention import IpexPagedBackend

    assert ipex_library.load() == ""
    backend: AttentionBackend = IpexPagedBackend()
    geometry = Geometry(
        num_heads=KV_HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=DIM,
        block_size=BLOCK,
        dtype=torch.float32,
        kv_dtype=torch.float32,
    )
    layer = Layer(backend, geometry, AttentionTerms(scale=1.0), NUM_BLOCKS, torch.device("cpu"))
    layer.cache = [guarded_zeros(one.shape) for one in layer.cache]
    return layer


def _through_the_plugin(slots: list[int]) -> None:
    layer = _layer()
    layer.write(*_rows(len(slots)), torch.tensor(slots))
    kept = sum(0 <= slot < NUM_BLOCKS * BLOCK for slot in slots)
    for cache, value in zip(layer.cache, (1.0, 2.0), strict=True):
        written = float(cache[layer.layout.reserved_blocks :].sum())
        assert written == kept * KV_HEADS * DIM * value


def _plugin_with_another_layout() -> None:
    layer = _layer()
    layer.cache = [guarded_zeros(_DOCUMENTED_SHAPE) for _ in layer.cache]
    layer.write(*_rows(3), torch.tensor([0, 17, 35]))


CASES: Mapping[str, Callable[[], None]] = {
    "raw": lambda: _raw(_SHAPE, [0, 17, 35]),
    "raw, padding": lambda: _raw(_SHAPE, [0, -1, 35]),
    "raw, far slot": lambda: _raw(_SHAPE, [0, FAR, 35]),
    "raw, documented layout": lambda: _raw(_DOCUMENTED_SHAPE, [0, 17, NUM_BLOCKS * BLOCK - 1]),
    "plugin": lambda: _through_the_plugin([16, 17, 35]),
    "plugin, padding": lambda: _through_the_plugin([16, -1, 35, -1]),
    "plugin, padding alone": lambda: _through_the_plugin([-1, -1]),
    "plugin, far slot": lambda: _through_the_plugin([16, FAR, 35]),
    "plugin, documented layout": _plugin_with_another_layout,
}
REFUSED = 3
"""Exit status of a child that got an exception."""


def _ended(case: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        try:
            case()
        except Exception as error:  # noqa: BLE001 - any of them is better than a signal
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(REFUSED)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    importlib.import_module("intel_extension_for_pytorch")  # once, before the forks
    print(json.dumps({name: _ended(CASES[name]) for name in sys.argv[1:]}))  # noqa: T201
