"""The attention part of a plan: backends, block size, fallbacks; refusals where nobody serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dougong.config.decision import CORE, USER, Decision, platform_author
from dougong.contracts import AttentionAssignment, AttentionPhase
from dougong.describe import AttentionNeed
from dougong.planner.attention_candidates import BackendJudge, CacheTerms, request_of, spec_of
from dougong.planner.attention_choice import (
    AttentionAsk,
    AttentionChoice,
    Pick,
    choose_attention,
)
from dougong.planner.attention_refusal import refusals
from dougong.planner.attention_wish import AttentionWish, read_attention_wish
from dougong.planner.backend_queries import BackendQueries
from dougong.planner.execution_plan import AttentionPlan, FallbackLevel, PassedOver
from dougong.planner.findings import Findings
from dougong.planner.inputs import PlanInputs
from dougong.planner.number_ranges import number_ranges
from dougong.planner.provenance import origins

REFERENCE_BACKEND = "reference/torch"


@dataclass(frozen=True, slots=True)
class ChosenAttention:
    """Backends for every kind of layer.

    Attributes:
        judge: That was asked.
        needs: Kinds of layers.
        picks: Their backends.
        terms: Dtypes and the one block size.
        wish: What was asked for; ``None``: nothing.
    """

    judge: BackendJudge
    needs: tuple[AttentionNeed, ...]
    picks: tuple[Pick, ...]
    terms: CacheTerms
    wish: AttentionWish | None


def choose(inputs: PlanInputs, findings: Findings) -> ChosenAttention | None:
    """Backends for every kind of layer; ``None``: some have none, which is noted.

    Raises:
        PluginError: A backend raised when it was asked.
    """
    config, candidates = inputs.config, inputs.candidates
    queries = BackendQueries(candidates.attention, candidates.preferred, inputs.platform)
    judge = BackendJudge(
        queries,
        candidates.kernels,
        candidates.failed_backends,
        origins(inputs),
        inputs.capabilities.claims,
    )
    wish = read_attention_wish(config, inputs.decisions, findings)
    if wish is None and config.compute.attention_backend is not None:
        return None  # malformed, and noted
    needs = inputs.needs.attention
    if unknown := _unknown_names(wish, queries):
        assert wish is not None
        findings.refuse(
            f"attention_backend={wish.text} names {', '.join(unknown)}, which is not among those "
            f"of platform {inputs.platform!r}: {', '.join(queries.backends) or 'none'}.",
            author=wish.author,
        )
        return None
    ask = AttentionAsk(
        dtype=config.compute.dtype,
        kv_dtype=config.kv_cache.dtype,
        block_sizes=_block_sizes(inputs, judge, needs),
        num_blocks=config.kv_cache.asked_blocks,
        wish=wish,
    )
    choice = choose_attention(judge, needs, ask)
    picks = tuple(pick for pick in choice.picks if isinstance(pick, Pick))
    if not choice.is_complete:
        _refuse(inputs, findings, judge, ask, choice)
        return None
    chosen = ChosenAttention(judge, needs, picks, choice.terms, wish)
    if wish is None:
        _note_fallbacks(chosen, findings)
    return chosen


def assign(
    chosen: ChosenAttention, platform: str, max_num_tokens: int, *, needs_graph: bool
) -> tuple[AttentionPlan, ...]:
    """What a rank is told, and the reasons.

    Args:
        chosen: Backends.
        platform: Its name.
        max_num_tokens: Of the largest step.
        needs_graph: Attention runs inside captured graphs.
    """
    return tuple(
        _plan_one(chosen, need, pick, platform, max_num_tokens, needs_graph)
        for need, pick in zip(chosen.needs, chosen.picks, strict=True)
    )


def block_size_decision(chosen: ChosenAttention, asked: int) -> Decision | None:
    """Why blocks have another size than was preferred; ``None``: they have that one."""
    size = chosen.terms.block_size
    if size == asked:
        return None
    names = ", ".join(dict.fromkeys(name for pick in chosen.picks for name in pick.names))
    return Decision("block_size", size, f"backend {names}", f"takes no blocks of {asked} tokens")


def _unknown_names(wish: AttentionWish | None, queries: BackendQueries) -> list[str]:
    names = () if wish is None else dict.fromkeys((wish.prefill, wish.decode))
    return [name for name in names if name not in queries.backends]


def _block_sizes(
    inputs: PlanInputs, judge: BackendJudge, needs: Sequence[AttentionNeed]
) -> tuple[int, ...]:
    """The user's, or all that device or backends name, those the device prefers first."""
    config = inputs.config
    preferred = config.kv_cache.block_size
    if "block_size" in config.explicit:
        return (preferred,)
    sizes = dict.fromkeys((preferred, *inputs.capabilities.claims.kv_block_sizes))
    terms = CacheTerms(config.compute.dtype, config.kv_cache.dtype, preferred)
    for need in needs:
        for name, backend in judge.queries.backends.items():
            if not judge.unusable(name):
                sizes |= dict.fromkeys(backend.limits.block_sizes if backend.limits else ())
                sizes |= dict.fromkeys(_sizes_of_layout(judge, name, need, terms))
    return tuple(sizes)


def _sizes_of_layout(
    judge: BackendJudge, name: str, need: AttentionNeed, terms: CacheTerms
) -> tuple[int, ...]:
    """Sizes that a backend's layout takes; a backend is asked for layouts of layers it serves."""
    for phase in AttentionPhase:
        request = replace(request_of(need, terms, phase), block_size=None)
        if judge.queries.supports(name, request):
            return judge.queries.kv_layout(
                name, spec_of(need, terms.kv_dtype, terms.block_size)
            ).block_sizes
    return ()


def _refuse(
    inputs: PlanInputs,
    findings: Findings,
    judge: BackendJudge,
    ask: AttentionAsk,
    choice: AttentionChoice,
) -> None:
    for problem in refusals(
        judge,
        inputs.needs.attention,
        ask,
        choice,
        inputs.capabilities.claims,
        platform=inputs.platform,
        explicit=inputs.config.explicit,
        choices=inputs.choices,
    ):
        findings.refuse(problem, author=USER if ask.wish is None else ask.wish.author)


def _plan_one(
    chosen: ChosenAttention,
    need: AttentionNeed,
    pick: Pick,
    platform: str,
    max_num_tokens: int,
    needs_graph: bool,
) -> AttentionPlan:
    request = replace(request_of(need, chosen.terms), needs_graph=needs_graph)
    workspace = sum(
        chosen.judge.queries.workspace_bytes(name, replace(request, phase=phase), max_num_tokens)
        for phase, name in pick.by_phase.items()
    )
    return AttentionPlan(
        assignment=AttentionAssignment(
            layer_indices=need.layer_indices,
            request=request,
            backend=pick.prefill,
            decode_backend=pick.decode,
            layout=pick.layout,
        ),
        author=_author(chosen, pick, platform),
        workspace_bytes=workspace,
        passed_over=tuple(_passed_over(chosen, pick)),
    )


def _author(chosen: ChosenAttention, pick: Pick, platform: str) -> str:
    if chosen.wish is not None:
        return chosen.wish.author
    return platform_author(platform) if pick.preferred in pick.names else CORE


def _passed_over(chosen: ChosenAttention, pick: Pick) -> Iterator[PassedOver]:
    used = " and ".join(pick.names)
    first = f"not asked: {used} comes first" if chosen.wish is None else (
        f"not asked: attention_backend={chosen.wish.text} was asked for"
    )  # fmt: skip
    for name, why in pick.objections.items():
        yield PassedOver(name, why)
    for name in chosen.judge.queries.backends:
        if name not in pick.objections and name not in pick.names:
            yield PassedOver(name, first)


def _note_fallbacks(chosen: ChosenAttention, findings: Findings) -> None:
    """A kind that is not on the backend that comes first, layers of one reason together."""
    layers: dict[tuple[str, str, str], list[int]] = {}
    for need, pick in zip(chosen.needs, chosen.picks, strict=True):
        for first, why in _displaced(chosen, need, pick):
            key = first, " and ".join(pick.names), why
            layers.setdefault(key, []).extend(need.layer_indices)
    total = sum(len(need.layer_indices) for need in chosen.needs)
    for (first, used, why), indices in layers.items():
        where = "" if len(indices) == total else f" of layers {number_ranges(indices)}"
        hint = "plain torch, one sequence after another" if used == REFERENCE_BACKEND else ""
        findings.fall_back(
            FallbackLevel.PATH, f"attention{where}", f"{used} runs, not {first}: {why}", hint
        )


def _displaced(
    chosen: ChosenAttention, need: AttentionNeed, pick: Pick
) -> Iterable[tuple[str, str]]:
    """Backends that come first for a phase and do not serve it, with the reason."""
    names = list(chosen.judge.queries.backends)
    if pick.preferred is not None:
        names.sort(key=lambda name: name != pick.preferred)
    found = {}
    for phase, used in pick.by_phase.items():
        meant = [name for name in names if _is_meant_for(chosen, name, phase)]
        if used != REFERENCE_BACKEND:  # else what plain torch stands in for is told in any case
            meant = [name for name in meant if _is_of_this_device(chosen, name)]
        first = next(iter(meant), used)
        if first != used:
            found[first] = (
                chosen.judge.objection(first, need, chosen.terms, phase)
                or f"it shares no layout with {' and '.join(pick.names)}"
            )
    return found.items()


def _is_of_this_device(chosen: ChosenAttention, name: str) -> bool:
    """Whether the device claims what a backend's families do."""
    judge = chosen.judge
    return judge.queries.backends[name].features <= judge.claims.features


def _is_meant_for(chosen: ChosenAttention, name: str, phase: AttentionPhase) -> bool:
    """Whether a backend is there for a phase at all; only one that says so is not."""
    limits = chosen.judge.queries.backends[name].limits
    is_whole = phase is AttentionPhase.MIXED
    return is_whole or limits is None or phase in limits.phases
