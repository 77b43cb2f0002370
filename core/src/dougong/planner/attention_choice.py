"""Backends for every kind of layer and the one block size that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dougong.contracts import AttentionPhase, KVBuffer, KVLayout
from dougong.describe import AttentionNeed
from dougong.planner.attention_candidates import BackendJudge, CacheTerms, request_of
from dougong.planner.attention_wish import AttentionWish


@dataclass(frozen=True, slots=True)
class AttentionAsk:
    """Under which terms backends are looked for.

    Attributes:
        dtype: Compute dtype.
        kv_dtype: Of the stored cache.
        block_sizes: Tokens per block that may be chosen, preferred first; never empty.
        num_blocks: Blocks that were asked for; ``None``: an automatic number.
        wish: Backends that were asked for; ``None``: the best of all.
    """

    dtype: str
    kv_dtype: str
    block_sizes: tuple[int, ...]
    num_blocks: int | None = None
    wish: AttentionWish | None = None


@dataclass(frozen=True, slots=True)
class Pick:
    """The backend of one kind of layer, or the pair.

    Attributes:
        prefill: Serves all, or prefill.
        decode: Serves sequences with one query token; ``None``: the first does.
        layout: That they share.
        rank: How far down the list they stand; 0 is best.
        objections: Name → why not, of those that were asked and will not do.
        preferred: The platform's own answer for this kind.
    """

    prefill: str
    decode: str | None
    layout: KVLayout
    rank: int
    objections: Mapping[str, str]
    preferred: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """Both, or the one."""
        return tuple(dict.fromkeys(self.by_phase.values()))

    @property
    def by_phase(self) -> dict[AttentionPhase, str]:
        """What each is asked to serve."""
        if self.decode is None:
            return {AttentionPhase.MIXED: self.prefill}
        return {AttentionPhase.PREFILL: self.prefill, AttentionPhase.DECODE: self.decode}


@dataclass(frozen=True, slots=True)
class NoPick:
    """No backend serves one kind of layer; each candidate has its objection.

    Attributes:
        objections: Name, or ``"A with B"`` for a pair → why not.
    """

    objections: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """What was found at the best block size.

    Attributes:
        terms: With that block size.
        picks: One per kind of layer, in order.
    """

    terms: CacheTerms
    picks: tuple[Pick | NoPick, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every kind has a backend."""
        return not any(isinstance(pick, NoPick) for pick in self.picks)


def choose_attention(
    judge: BackendJudge, needs: Sequence[AttentionNeed], ask: AttentionAsk
) -> AttentionChoice:
    """The block size at which the backends that come first can be used, and those backends.

    Every kind of layer has the same block size. A better backend counts for more than a preferred
    block size, and a kind with many layers for more than one with few; among equals the earlier
    block size wins.
    """
    found = []
    for block_size in ask.block_sizes:
        terms = CacheTerms(ask.dtype, ask.kv_dtype, block_size, ask.num_blocks)
        picks = tuple(_pick(judge, need, terms, ask.wish) for need in needs)
        found.append(AttentionChoice(terms, picks))
    return min(found, key=lambda choice: _badness(choice, needs))


def _badness(choice: AttentionChoice, needs: Sequence[AttentionNeed]) -> tuple[int, int]:
    """Layers without a backend, then how far down the list the others' backends stand."""
    unserved = rank = 0
    for need, pick in zip(needs, choice.picks, strict=True):
        num_layers = len(need.layer_indices)
        if isinstance(pick, Pick):
            rank += pick.rank * num_layers
        else:
            unserved += num_layers
    return unserved, rank


def _pick(
    judge: BackendJudge, need: AttentionNeed, terms: CacheTerms, wish: AttentionWish | None
) -> Pick | NoPick:
    if wish is None:
        preferred = judge.queries.preferred(request_of(need, terms))
        first = () if preferred is None else (preferred,)
        names = tuple(dict.fromkeys((*first, *judge.queries.backends)))
        return _pick_among(judge, need, terms, names, preferred)
    if not wish.is_pair:
        return _pick_among(judge, need, terms, (wish.prefill,), None)
    return _pick_pair(judge, need, terms, wish)


def _pick_among(
    judge: BackendJudge,
    need: AttentionNeed,
    terms: CacheTerms,
    names: Sequence[str],
    preferred: str | None,
) -> Pick | NoPick:
    """The first that serves all, else the first pair that shares a layout."""
    objections: dict[str, str] = {}
    for rank, name in enumerate(names):
        if not (objection := judge.objection(name, need, terms, AttentionPhase.MIXED)):
            layout = judge.layout(name, need, terms)
            return Pick(name, None, layout, rank, objections, preferred)
        objections[name] = objection
    able = [
        [name for name in names if not judge.objection(name, need, terms, phase)]
        for phase in (AttentionPhase.PREFILL, AttentionPhase.DECODE)
    ]
    apart = {}
    for rank, (prefill, decode) in enumerate(product(*able), len(names)):
        layout = judge.layout(prefill, need, terms)
        if difference := _layout_difference(judge, need, terms, prefill, decode):
            apart[f"{prefill} with {decode}"] = difference
            continue
        used = (prefill, decode)
        others = {name: why for name, why in objections.items() if name not in used}
        return Pick(prefill, decode, layout, rank, others, preferred)
    return NoPick(objections | apart)


def _pick_pair(
    judge: BackendJudge, need: AttentionNeed, terms: CacheTerms, wish: AttentionWish
) -> Pick | NoPick:
    objections = {
        f"{name} for {phase}": objection
        for name, phase in (
            (wish.prefill, AttentionPhase.PREFILL),
            (wish.decode, AttentionPhase.DECODE),
        )
        if (objection := judge.objection(name, need, terms, phase))
    }
    if objections:
        return NoPick(objections)
    if difference := _layout_difference(judge, need, terms, wish.prefill, wish.decode):
        return NoPick({f"{wish.prefill} with {wish.decode}": difference})
    return Pick(wish.prefill, wish.decode, judge.layout(wish.prefill, need, terms), 0, {}, None)


def _layout_difference(
    judge: BackendJudge, need: AttentionNeed, terms: CacheTerms, prefill: str, decode: str
) -> str:
    """Both layouts in words, where they differ in more than the block sizes they take."""
    first, second = (judge.layout(name, need, terms) for name in (prefill, decode))
    if replace(first, block_sizes=()) == replace(second, block_sizes=()):
        return ""
    told = (f"{name} has {describe_layout(layout)}" for name, layout in
            ((prefill, first), (decode, second)))  # fmt: skip
    return f"they share no layout: {', and '.join(told)}"


def describe_layout(layout: KVLayout) -> str:
    """A layout in words."""
    buffers = map(_describe_buffer, layout.buffers)
    return f"{layout.name} ({', '.join((*buffers, *_unusual(layout)))})"


def _describe_buffer(buffer: KVBuffer) -> str:
    words = f"{buffer.name} {list(buffer.block_shape)} {buffer.dtype}"
    if buffer.block_axis:
        words += f" with blocks on axis {buffer.block_axis}"
    if buffer.stride_order is not None:
        words += f" in the order {list(buffer.stride_order)}"
    return words


def _unusual(layout: KVLayout) -> Iterator[str]:
    if layout.alignment_bytes != 1:
        yield f"aligned to {layout.alignment_bytes} bytes"
    if layout.slot_dtype != "int64":
        yield f"{layout.slot_dtype} slots"
    if layout.reserved_blocks:
        yield f"{layout.reserved_blocks} blocks reserved"
