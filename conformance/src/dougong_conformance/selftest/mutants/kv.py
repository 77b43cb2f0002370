"""Broken writes into the KV cache.

The contract has no call that copies or swaps blocks, so K04, K07, K08 and K09 of the first
catalogue stand here as mistakes of ``write_kv`` of the same kind. An 8-bit cache has no scales, so
K05, which ignored them, takes one dtype for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dougong_conformance.selftest.changes import with_claims
from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.plain_attention import PlainImpl, place_of, with_plain
from dougong_conformance.session import PluginUnderTest

Tensor = torch.Tensor
_FP8 = ("float8_e4m3fn",)


@mutant("K01", "slot -1 is the last slot of the cache", killer="kv.padding_slots")
def _k01(plugin: PluginUnderTest) -> PluginUnderTest:
    def slots(self: Any, given: Tensor, kv_cache: Sequence[Tensor]) -> Tensor:
        count = kv_cache[0].shape[0] * kv_cache[0].shape[1]
        return torch.where(given < 0, given + count, given)

    return with_plain(plugin, _slots=slots)


@mutant("K02", "keys and values change places", killer="kv.scattered_slots")
def _k02(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(plugin, _stored=lambda self, k, v: (v, k))


@mutant(
    "K03",
    "tokens are written one after the other from the first slot",
    killer="kv.only_named_blocks",
)
def _k03(plugin: PluginUnderTest) -> PluginUnderTest:
    def slots(self: Any, given: Tensor, kv_cache: Sequence[Tensor]) -> Tensor:
        count = kv_cache[0].shape[0] * kv_cache[0].shape[1]
        first = given.clamp(min=0)[:1]
        after = (first + torch.arange(given.shape[0], device=given.device)) % count
        return torch.where(given < 0, given, after)

    return with_plain(plugin, _slots=slots)


@mutant("K04", "values go to the slot of the next token of the call", killer="kv.scattered_slots")
def _k04(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(plugin, _stored=lambda self, k, v: (k, torch.cat((v[-1:], v[:-1]))))


@mutant("K05", "a cache of float8_e4m3fn is read as float8_e5m2", killer="kv.dtypes")
def _k05(plugin: PluginUnderTest) -> PluginUnderTest:
    def widen(self: Any, rows: Tensor) -> Tensor:
        if rows.dtype is torch.float8_e4m3fn:
            rows = rows.cpu().view(torch.float8_e5m2).float().to(rows.device)
        return rows.float()

    return with_plain(with_claims(plugin, kv_dtypes=_FP8), _widen=widen)


@mutant("K06", "what an 8-bit cache cannot hold becomes NaN", killer="kv.saturation")
def _k06(plugin: PluginUnderTest) -> PluginUnderTest:
    def narrow(self: Any, rows: Tensor, dtype: torch.dtype) -> Tensor:
        if dtype.itemsize == 1:
            wide = rows.float()
            rows = torch.where(wide.abs() > torch.finfo(dtype).max, wide * torch.nan, wide)
        return rows.to(dtype)

    return with_plain(with_claims(plugin, kv_dtypes=_FP8), _narrow=narrow)


@mutant("K07", "a single token's values are not written", killer="kv.neighbours")
def _k07(plugin: PluginUnderTest) -> PluginUnderTest:
    def write_kv(self: Any, k: Tensor, v: Tensor, kv_cache: Any, slot_mapping: Tensor) -> None:
        if slot_mapping.shape[0] > 1:
            PlainImpl.write_kv(self, k, v, kv_cache, slot_mapping)
            return
        before = kv_cache[1].clone()
        PlainImpl.write_kv(self, k, v, kv_cache, slot_mapping)
        kv_cache[1].copy_(before)

    return with_plain(plugin, write_kv=write_kv)


@mutant("K08", "a block is cleared before a token is written into it", killer="kv.neighbours")
def _k08(plugin: PluginUnderTest) -> PluginUnderTest:
    def put(self: Any, cache: Tensor, slots: Tensor, rows: Tensor) -> None:
        cache[place_of(slots, cache.shape[1])[0]] = torch.zeros_like(cache[:1])
        PlainImpl._put(self, cache, slots, rows)

    return with_plain(plugin, _put=put)


@mutant("K09", "a slot that holds something already is not written", killer="kv.overwritten_slots")
def _k09(plugin: PluginUnderTest) -> PluginUnderTest:
    def put(self: Any, cache: Tensor, slots: Tensor, rows: Tensor) -> None:
        blocks, at = place_of(slots, cache.shape[1])
        old = cache[blocks, at]
        cache[blocks, at] = torch.where(old.isnan(), rows, old)

    return with_plain(plugin, _put=put)
