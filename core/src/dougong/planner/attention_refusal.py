"""Attention that nobody serves: every candidate with its reason, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dougong.contracts import Claims
from dougong.describe import AttentionNeed
from dougong.planner.attention_candidates import BackendJudge, CacheTerms
from dougong.planner.attention_choice import (
    AttentionAsk,
    AttentionChoice,
    NoPick,
    choose_attention,
)
from dougong.planner.attention_wish import AttentionWish
from dougong.planner.findings import nested
from dougong.planner.number_ranges import number_ranges


def refusals(
    judge: BackendJudge,
    needs: Sequence[AttentionNeed],
    ask: AttentionAsk,
    choice: AttentionChoice,
    claims: Claims,
    *,
    platform: str,
    explicit: frozenset[str],
    choices: Mapping[str, object],
) -> Iterator[str]:
    """One problem per kind of layer without a backend.

    Args:
        judge: Of backends.
        needs: Kinds of layers.
        ask: What could not be had.
        choice: What was found instead; at least one kind has nothing.
        claims: Of the device, for the values that may be tried instead.
        platform: Its name.
        explicit: Options that the user set.
        choices: Their values as they were written.
    """
    instead = tuple(_alternatives(judge, needs, ask, claims)) or tuple(
        _all_unset(judge, needs, ask, claims, explicit)
    )
    for need, pick in zip(needs, choice.picks, strict=True):
        if isinstance(pick, NoPick):
            whose = f"platform {platform}" if ask.wish is None else (
                f"attention_backend={ask.wish.text}"
            )  # fmt: skip
            head = (
                f"{whose} cannot serve {_describe(need, len(needs))} with "
                f"{_describe_terms(choice.terms, explicit, choices)}:"
            )
            told = [f"{name}: {why}" for name, why in pick.objections.items()]
            told += _other_candidates(judge, needs, ask, choice.terms)
            helps = ", or ".join(instead) or "choose another platform"
            yield nested(head, (*(told or ["it has no attention backend"]), f"Instead: {helps}."))


def _describe(need: AttentionNeed, num_kinds: int) -> str:
    parts = [f"head_dim={need.head_dim}"]
    if need.head_dim_v not in (None, need.head_dim):
        parts.append(f"head_dim_v={need.head_dim_v}")
    if need.sliding_window is not None:
        parts.append(f"sliding_window={need.sliding_window}")
    if need.soft_cap is not None:
        parts.append(f"soft_cap={need.soft_cap:g}")
    parts += ["sinks"] * need.has_sinks + ["latent attention"] * need.is_mla
    where = f" in layers {number_ranges(need.layer_indices)}" if num_kinds > 1 else ""
    return f"attention of {', '.join(parts)}{where}"


def _describe_terms(
    terms: CacheTerms, explicit: frozenset[str], choices: Mapping[str, object]
) -> str:
    values = {
        "dtype": terms.dtype,
        "kv_cache_dtype": terms.kv_dtype,
        "block_size": str(terms.block_size),
    }
    if terms.num_blocks is not None:
        values["num_kv_blocks"] = str(terms.num_blocks)
    return ", ".join(
        f"{name}={value}" + (_asked_as(value, choices.get(name)) if name in explicit else "")
        for name, value in values.items()
    )


def _asked_as(value: str, written: object) -> str:
    """That the user set a value, in the user's own spelling where it is another."""
    return f" (asked for{'' if written is None or str(written) == value else f' as {written}'})"


def _other_candidates(
    judge: BackendJudge, needs: Sequence[AttentionNeed], ask: AttentionAsk, terms: CacheTerms
) -> Iterator[str]:
    """Those that were not asked for: whether they would do."""
    if ask.wish is None:
        return
    for name in judge.queries.backends:
        if name not in (ask.wish.prefill, ask.wish.decode):
            alone = replace(
                ask, wish=AttentionWish(name, name, name), block_sizes=(terms.block_size,)
            )
            picks = choose_attention(judge, needs, alone).picks
            why = [pick.objections[name] for pick in picks if isinstance(pick, NoPick)]
            yield f"{name} (not asked for): {'; '.join(dict.fromkeys(why)) or 'would do'}"


def _alternatives(
    judge: BackendJudge, needs: Sequence[AttentionNeed], ask: AttentionAsk, claims: Claims
) -> Iterator[str]:
    """Options that, changed alone, would give every kind of layer a backend."""
    if ask.wish is not None:
        names = [
            name
            for name in judge.queries.backends
            if _works(judge, needs, replace(ask, wish=AttentionWish(name, name, name)))
        ]
        if names:
            yield f"attention_backend={' or '.join(names)}"
    changed: dict[str, dict[str, AttentionAsk]] = {
        "block_size": {
            str(size): replace(ask, block_sizes=(size,)) for size in claims.kv_block_sizes
        },
        "kv_cache_dtype": {dtype: replace(ask, kv_dtype=dtype) for dtype in claims.kv_dtypes},
        "dtype": {dtype: _computing_in(ask, dtype, claims) for dtype in claims.dtypes},
    }
    for option, values in changed.items():
        working = [value for value, other in values.items() if _works(judge, needs, other)]
        if working:
            yield f"{option}={' or '.join(working)}"
    if ask.num_blocks is not None and _works(judge, needs, replace(ask, num_blocks=None)):
        yield "a smaller num_kv_blocks"


def _all_unset(
    judge: BackendJudge,
    needs: Sequence[AttentionNeed],
    ask: AttentionAsk,
    claims: Claims,
    explicit: frozenset[str],
) -> Iterator[str]:
    """Whether the user's options are the obstacle, taken together."""
    options = ("attention_backend", "kv_cache_dtype", "block_size", "num_kv_blocks")
    named = [option for option in options if option in explicit]
    sizes = tuple(dict.fromkeys((*claims.kv_block_sizes, *ask.block_sizes)))
    for kv_dtype in dict.fromkeys((ask.dtype, *claims.kv_dtypes)):
        unset = AttentionAsk(ask.dtype, kv_dtype, sizes)
        if named and kv_dtype in claims.kv_dtypes and _works(judge, needs, unset):
            yield f"leave {' and '.join(named)} unset"
            return


def _computing_in(ask: AttentionAsk, dtype: str, claims: Claims) -> AttentionAsk:
    """The same in another compute dtype; a KV dtype that was the same follows."""
    follows = ask.kv_dtype == ask.dtype and dtype in claims.kv_dtypes
    return replace(ask, dtype=dtype, kv_dtype=dtype if follows else ask.kv_dtype)


def _works(judge: BackendJudge, needs: Sequence[AttentionNeed], ask: AttentionAsk) -> bool:
    return choose_attention(judge, needs, ask).is_complete
