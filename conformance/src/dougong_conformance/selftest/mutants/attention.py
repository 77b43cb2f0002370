"""Broken attention."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import torch
from dougong.contracts import AttentionLimits, KVLayout, Support

from dougong_conformance.kit.metric import HALF_ULP
from dougong_conformance.selftest.changes import NotOnThisBase, with_claims
from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.plain_attention import (
    PlainBackend,
    PlainBuilder,
    PlainImpl,
    place_of,
    with_plain,
)
from dougong_conformance.session import PluginUnderTest

Tensor = torch.Tensor
_DTYPES = ("float32", "bfloat16", "float16")


@mutant("A01", "the scale of scores is forgotten", killer="attention.decode")
def _a01(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(plugin, _scale=lambda self: 1.0)


@mutant("A02", "scores are scaled by 1/d", killer="attention.decode")
def _a02(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(plugin, _scale=lambda self: 1.0 / self.request.head_dim)


@mutant(
    "A03",
    "the scale is that of a head rounded up to a multiple of 64",
    killer="attention.head_sizes",
)
def _a03(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(plugin, _scale=lambda self: (-(-self.request.head_dim // 64) * 64) ** -0.5)


@mutant("A04", "a query does not see its own token", killer="attention.decode")
def _a04(plugin: PluginUnderTest) -> PluginUnderTest:
    def hidden(self: Any, num_queries: int, num_keys: int, device: torch.device) -> Tensor:
        at_query = torch.arange(num_keys - num_queries, num_keys, device=device).unsqueeze(1)
        at_key = torch.arange(num_keys, device=device)
        return (at_key >= at_query) & (at_key > 0)

    return with_plain(plugin, _hidden=hidden)


@mutant("A05", "a chunk's mask begins at the first key", killer="attention.chunked")
def _a05(plugin: PluginUnderTest) -> PluginUnderTest:
    def hidden(self: Any, num_queries: int, num_keys: int, device: torch.device) -> Tensor:
        if num_queries == 1:
            return PlainImpl._hidden(self, num_queries, num_keys, device)
        at_query = torch.arange(num_queries, device=device).unsqueeze(1)
        return torch.arange(num_keys, device=device) > at_query

    return with_plain(plugin, _hidden=hidden)


@mutant("A06", "blocks of a sequence are taken to follow its first one", killer="attention.decode")
def _a06(plugin: PluginUnderTest) -> PluginUnderTest:
    def read(self: Any, cache: Tensor, blocks: Tensor) -> Tensor:
        after = blocks[:1] + torch.arange(blocks.shape[0], device=blocks.device)
        return PlainImpl._read(self, cache, after % cache.shape[0])

    return with_plain(plugin, _read=read)


@mutant("A07", "every sequence uses the first row of the block table", killer="attention.decode")
def _a07(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(plugin, _blocks=lambda self, table, index, count: table[0, :count].long())


@mutant("A08", "query heads are dealt out to KV heads in turn", killer="attention.decode")
def _a08(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(
        plugin,
        _kv_heads=lambda self, heads, kv_heads: [head % kv_heads for head in range(heads)],
    )


@mutant("A09", "the newest token is not seen", killer="attention.decode")
def _a09(plugin: PluginUnderTest) -> PluginUnderTest:
    def gather(self: Any, kv_cache: Any, table: Tensor, index: int, length: int) -> Any:
        return PlainImpl._gather(self, kv_cache, table, index, max(1, length - 1))

    return with_plain(plugin, _gather=gather)


@mutant("A10", "the whole last block is seen", killer="attention.decode")
def _a10(plugin: PluginUnderTest) -> PluginUnderTest:
    def gather(self: Any, kv_cache: Any, table: Tensor, index: int, length: int) -> Any:
        size = kv_cache[0].shape[1]
        self._length, whole = length, -(-length // size) * size
        return PlainImpl._gather(self, kv_cache, table, index, whole)

    def hidden(self: Any, num_queries: int, num_keys: int, device: torch.device) -> Tensor:
        found = PlainImpl._hidden(self, num_queries, self._length, device)
        beyond = torch.zeros(num_queries, num_keys - self._length, dtype=torch.bool, device=device)
        return torch.cat((found, beyond), dim=1)

    return with_plain(plugin, _gather=gather, _hidden=hidden)


@mutant("A11", "what is masked is multiplied with 0, so its NaN shows", killer="attention.decode")
def _a11(plugin: PluginUnderTest) -> PluginUnderTest:
    def gather(self: Any, kv_cache: Any, table: Tensor, index: int, length: int) -> Any:
        size = kv_cache[0].shape[1]
        whole = -(-length // size) * size
        keys, values = PlainImpl._gather(self, kv_cache, table, index, whole)
        if whole > length:
            values = values[:length] + 0 * values[length:].sum(dim=0, keepdim=True)
        return keys[:length], values[:length]

    return with_plain(plugin, _gather=gather)


@mutant("A12", "the largest score is not subtracted", killer="attention.large_logits")
def _a12(plugin: PluginUnderTest) -> PluginUnderTest:
    def shares(self: Any, scores: Tensor) -> Tensor:
        weights = scores.exp()
        return weights / weights.sum(dim=-1, keepdim=True)

    return with_plain(plugin, _shares=shares)


@mutant("A13", "a window holds one token too many", killer="attention.sliding_window")
def _a13(plugin: PluginUnderTest) -> PluginUnderTest:
    def window(self: Any) -> int | None:
        asked = self.request.sliding_window
        return None if asked is None else asked + 1

    return with_plain(plugin, _window=window)


@mutant("A14", "it takes windows and ignores them", killer="attention.sliding_window")
def _a14(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(plugin, _window=lambda self: None)


@mutant("A15", "it takes caps and ignores them", killer="attention.soft_cap")
def _a15(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(plugin, _capped=lambda self, scores: scores)


@mutant(
    "A16", "places are computed for blocks of 16, whatever they are", killer="attention.block_sizes"
)
def _a16(plugin: PluginUnderTest) -> PluginUnderTest:
    def gather(self: Any, kv_cache: Any, table: Tensor, index: int, length: int) -> Any:
        size = kv_cache[0].shape[1]
        row, at = place_of(torch.arange(length, device=table.device), 16)
        blocks = table[index].long()[row.clamp(max=table.shape[1] - 1)]
        at = place_of(at, size)[1]
        found = [cache[blocks, at].float() for cache in kv_cache]
        return found[0], found[1]

    return with_plain(plugin, _gather=gather)


@mutant("A17", "scores are rounded to bfloat16", killer="attention.near_ties")
def _a17(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(
        plugin, _shares=lambda self, scores: scores.bfloat16().float().softmax(dim=-1)
    )


@mutant(
    "A18",
    "it claims batch invariance and sums a lone sequence otherwise",
    killer="attention.batch_invariance",
)
def _a18(plugin: PluginUnderTest) -> PluginUnderTest:
    def shares(self: Any, scores: Tensor) -> Tensor:
        found = PlainImpl._shares(self, scores)
        if self._num_reqs == 1 and found.shape[-1] > 1:
            found = found * (1 + 2.0**-9)
        return found

    claimed = with_claims(plugin, features=[f"batch_invariant.{one}" for one in _DTYPES])
    return with_plain(claimed, _shares=shares)


@mutant("A19", "a repeated step differs in the last bit", killer="attention.repeatable")
def _a19(plugin: PluginUnderTest) -> PluginUnderTest:
    calls = itertools.count()

    def forward(
        self: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_cache: Any,
        metadata: Any,
        out: Tensor,
    ) -> None:
        PlainImpl.forward(self, q, k, v, kv_cache, metadata, out)
        if next(calls) % 2:
            out.mul_(1 + 2 * HALF_ULP[out.dtype])

    return with_plain(plugin, forward=forward)


@mutant("A20", "exponentials are off by two percent", killer="attention.decode")
def _a20(plugin: PluginUnderTest) -> PluginUnderTest:
    def shares(self: Any, scores: Tensor) -> Tensor:
        weights = scores.softmax(dim=-1)
        finite = torch.where(torch.isfinite(scores), scores, torch.zeros_like(scores))
        weights = weights * (1 + 0.02 * torch.sin(37 * finite))
        return weights / weights.sum(dim=-1, keepdim=True)

    return with_plain(plugin, _shares=shares)


@mutant(
    "A21",
    "scores are masked first and capped then, so hidden keys count",
    killer="attention.soft_cap",
)
def _a21(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(
        plugin,
        _masked=lambda self, scores, hidden: self._capped(scores.masked_fill(hidden, -torch.inf)),
    )


@mutant("A22", "it says yes to latent attention and makes none", killer="attention.claims")
def _a22(plugin: PluginUnderTest) -> PluginUnderTest:
    def supports(self: Any, request: Any) -> Support:
        if request.is_mla:
            return Support.yes()
        return PlainBackend.supports(self, request)

    return with_plain(plugin, backend={"supports": supports})


@mutant("A23", "a prefix that sequences share is counted twice", killer="attention.shared_prefix")
def _a23(plugin: PluginUnderTest) -> PluginUnderTest:
    def gather(self: Any, kv_cache: Any, table: Tensor, index: int, length: int) -> Any:
        keys, values = PlainImpl._gather(self, kv_cache, table, index, length)
        size = kv_cache[0].shape[1]
        self._twice = 0
        if self._num_reqs > 1 and length > size and index:
            is_shared = bool((table[index, 0] == table[0, 0]).cpu())
            self._twice = size if is_shared else 0
        prefix = slice(0, self._twice)
        return torch.cat((keys[prefix], keys)), torch.cat((values[prefix], values))

    def hidden(self: Any, num_queries: int, num_keys: int, device: torch.device) -> Tensor:
        found = PlainImpl._hidden(self, num_queries, num_keys - self._twice, device)
        seen = torch.zeros(num_queries, self._twice, dtype=torch.bool, device=device)
        return torch.cat((seen, found), dim=1)

    return with_plain(plugin, _gather=gather, _hidden=hidden)


@mutant("A24", "numbers of blocks are cut to 16 bits", killer="attention.far_blocks")
def _a24(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(
        plugin, _blocks=lambda self, table, index, count: table[index, :count].long() % 65536
    )


@mutant(
    "A25",
    "heads wider than 64 are computed from their first 64 elements",
    killer="attention.head_sizes",
)
def _a25(plugin: PluginUnderTest) -> PluginUnderTest:
    def scaled(self: Any, q: Tensor) -> Tensor:
        q = PlainImpl._scaled(self, q)
        return torch.cat((q[..., :64], torch.zeros_like(q[..., 64:])), dim=-1)

    return with_plain(plugin, _scaled=scaled)


@mutant("A26", "tokens of padding count as the last sequence's", killer="attention.padding")
def _a26(plugin: PluginUnderTest) -> PluginUnderTest:
    def forward(
        self: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_cache: Any,
        metadata: Any,
        out: Tensor,
    ) -> None:
        starts = metadata.cu_seqlens_q_cpu.clone()
        starts[metadata.num_reqs] = q.shape[0]
        changed = replace(metadata, cu_seqlens_q_cpu=starts)
        PlainImpl.forward(self, q, k, v, kv_cache, changed, out)

    return with_plain(plugin, forward=forward)


@mutant("A27", "the builder reads lengths back from the device", killer="attention.metadata_waits")
def _a27(plugin: PluginUnderTest) -> PluginUnderTest:
    if plugin.make_platform().device_type == "cpu":
        raise NotOnThisBase("the device is the host, so reading from it costs nothing")

    class Waiting(PlainBuilder):
        def build(self, common: Any) -> Any:
            return replace(common, seq_lens_cpu=common.seq_lens.cpu())

    return with_plain(plugin, builder=Waiting)


@mutant(
    "A28", "memory beside the cache is stated as a negative number", killer="attention.workspace"
)
def _a28(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_plain(
        plugin, backend={"workspace_bytes": lambda self, request, max_num_tokens: -max_num_tokens}
    )


@mutant("A29", "its layout has another block size than was asked for", killer="attention.layouts")
def _a29(plugin: PluginUnderTest) -> PluginUnderTest:
    def kv_layout(self: Any, spec: Any) -> KVLayout:
        return replace(PlainBackend.kv_layout(self, spec), block_sizes=(spec.block_size + 1,))

    return with_plain(plugin, backend={"kv_layout": kv_layout})


@mutant("A30", "NaN is replaced in the result", killer="attention.nonfinite")
def _a30(plugin: PluginUnderTest) -> PluginUnderTest:
    def forward(
        self: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_cache: Any,
        metadata: Any,
        out: Tensor,
    ) -> None:
        PlainImpl.forward(self, q, k, v, kv_cache, metadata, out)
        out.copy_(torch.where(torch.isfinite(out), out, torch.zeros_like(out)))

    return with_plain(plugin, forward=forward)


@mutant(
    "A31", "metadata of a step with the same shape is used again", killer="attention.changing_steps"
)
def _a31(plugin: PluginUnderTest) -> PluginUnderTest:
    class Keeping(PlainBuilder):
        def build(self, common: Any) -> Any:
            kept = self.__dict__.setdefault("_kept", {})
            return kept.setdefault(tuple(common.block_table.shape), common)

    return with_plain(plugin, builder=Keeping)


@mutant("A32", "a prompt's last token is left out", killer="attention.prefill")
def _a32(plugin: PluginUnderTest) -> PluginUnderTest:
    def attend(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = PlainImpl._attend(self, q, k, v)
        if q.shape[0] == k.shape[0] > 1:
            rows[-1] = rows[-2]
        return rows

    return with_plain(plugin, _attend=attend)


@mutant(
    "A33", "forward writes the newest token into the cache once more", killer="attention.bounds"
)
def _a33(plugin: PluginUnderTest) -> PluginUnderTest:
    def forward(
        self: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_cache: Any,
        metadata: Any,
        out: Tensor,
    ) -> None:
        PlainImpl.forward(self, q, k, v, kv_cache, metadata, out)
        keys = kv_cache[0]
        # One slot further, which is somebody else's or nobody's.
        after = metadata.slot_mapping[-1:].long() + 1
        blocks, at = place_of(after.clamp(max=keys.shape[0] * keys.shape[1] - 1), keys.shape[1])
        keys[blocks, at] = k[-1:].to(keys.dtype)

    return with_plain(plugin, forward=forward)


@mutant(
    "A34", "it says no to windows and, asked all the same, ignores them", killer="attention.claims"
)
def _a34(plugin: PluginUnderTest) -> PluginUnderTest:
    limits: AttentionLimits = replace(PlainBackend.limits, sliding_window=False)
    return with_plain(plugin, backend={"limits": limits}, _window=lambda self: None)


@mutant("M11", "one row is written past the end of out", killer="attention.bounds")
def _m11(plugin: PluginUnderTest) -> PluginUnderTest:
    def forward(
        self: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_cache: Any,
        metadata: Any,
        out: Tensor,
    ) -> None:
        PlainImpl.forward(self, q, k, v, kv_cache, metadata, out)
        row = out.shape[1] * out.shape[2]
        room = out.untyped_storage().nbytes() // out.element_size()
        end = out.storage_offset() + out.shape[0] * row
        if end + row <= room:
            out.as_strided((row,), (1,), end).fill_(0.0)

    return with_plain(plugin, forward=forward)
