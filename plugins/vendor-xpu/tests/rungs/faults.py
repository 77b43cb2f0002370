"""What a plugin gets wrong on a device, each planted once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from dougong.ops import RotaryEmbedding
from dougong_conformance.ladder.fake_device import DeviceRuleBroken

from dougong_xpu import kernels
from tests.rungs.fakes.checks import Refused
from tests.rungs.scenarios import (
    DIM,
    DTYPE,
    HIDDEN,
    TOKENS,
    attention_step,
    joined,
    positions,
    rows,
    table,
)

Fail = Callable[[torch.device], Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """How it is planted, and how it shows."""

    run: Fail
    error: type[Exception]
    message: str | None = None


def _attention_with(**planted: Any) -> Fail:
    def run(device: torch.device) -> None:
        layer, q, k, v, common = attention_step(device)
        layer.attend(replace(common, **planted), q, k, v)

    return run


def _table_on_the_host(device: torch.device) -> None:
    op = RotaryEmbedding(DIM, DIM, table(torch.device("cpu")))
    kernels.XpuRotaryEmbedding(op)(positions(device), *joined(device)[:2])


def _table_of_another_dtype(device: torch.device) -> None:
    q, k, _ = joined(device)
    torch.ops._C.rotary_embedding(
        positions(device), q, k, head_size=DIM, cos_sin_cache=table(device), is_neox=True
    )


def _write(device: torch.device, *, slots: torch.dtype = torch.int64, scale: Any = None) -> None:
    layer, _, k, v, common = attention_step(device)
    one = torch.ones(1, device=device) if scale is None else scale
    torch.ops._C_cache_ops.reshape_and_cache_flash(
        k, v, *layer.cache, common.slot_mapping.to(slots), "auto", k_scale=one, v_scale=one
    )


def _norm(device: torch.device, **given: Any) -> None:
    x = rows(device, TOKENS, HIDDEN)
    torch.ops._C.rms_norm(given.pop("result", x), x, rows(device, HIDDEN), **given)


def _read_on_the_host(device: torch.device) -> None:
    layer, q, k, v, common = attention_step(device)
    longest = int(common.seq_lens.max())
    layer.attend(replace(common, max_seq_len=longest), q, k, v)


def _length_in_a_tensor(device: torch.device) -> None:
    longest: Any = torch.full((1, 1), 9, dtype=torch.int32, device=device)
    _attention_with(max_seq_len=longest)(device)


def _host(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


FAULTS: Mapping[str, Fault] = {
    "slots on the host": Fault(
        lambda device: _attention_with(slot_mapping=_host(TOKENS).long())(device), DeviceRuleBroken
    ),
    "block table on the host": Fault(
        lambda device: _attention_with(block_table=_host(3, 4))(device), DeviceRuleBroken
    ),
    "lengths on the host": Fault(
        lambda device: _attention_with(cu_seqlens_q=_host(4))(device), DeviceRuleBroken
    ),
    "table on the host": Fault(_table_on_the_host, DeviceRuleBroken),
    "a length read from the device": Fault(_read_on_the_host, DeviceRuleBroken, "wait"),
    "a length in a tensor": Fault(_length_in_a_tensor, Exception),
    "table of another dtype": Fault(_table_of_another_dtype, Refused, "cos_sin_cache is"),
    "slots of 32 bits": Fault(
        lambda device: _write(device, slots=torch.int32), Refused, "slot_mapping is"
    ),
    "a scale that is a number": Fault(
        lambda device: _write(device, scale=1.0), RuntimeError, "k_scale"
    ),
    "a misspelt keyword": Fault(lambda device: _norm(device, eps=1e-6), RuntimeError, "epsilon"),
    "a missing argument": Fault(lambda device: _norm(device), RuntimeError, "epsilon"),
    "nothing for a tensor": Fault(
        lambda device: _norm(device, result=None, epsilon=1e-6), Exception
    ),
    "a weight of another width": Fault(
        lambda device: torch.ops._C.rms_norm(
            rows(device, TOKENS, HIDDEN),
            rows(device, TOKENS, HIDDEN),
            rows(device, DIM),
            epsilon=1e-6,
        ),
        Refused,
        "weight is",
    ),
    "queries in single precision": Fault(
        lambda device: _single_precision(device), Refused, "float16 and bfloat16"
    ),
}


def _single_precision(device: torch.device) -> None:
    layer, q, k, v, common = attention_step(device)
    assert q.dtype is DTYPE
    layer.impl.forward(q.float(), k, v, layer.cache, layer.builder.build(common), q)
