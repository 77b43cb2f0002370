"""A second opinion on plans and refusals, written without the planner's code.

It tries everything that could run, slowly, and says what must be refused and why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from dougong.contracts import (
    AttentionPhase,
    AttentionRequest,
    BindRequest,
    GraphAssignment,
    GraphSupport,
    KVCacheSpec,
    KVLayout,
    token_bounds,
)
from dougong.describe import AttentionNeed, CandidateKind, OpCandidate, OpSite, WeightNeed
from dougong.planner import ExecutionPlan, PlanInputs

BYTES = {"bfloat16": 2, "float32": 4, "float8_e4m3fn": 1}
MIXED, PREFILL, DECODE = AttentionPhase.MIXED, AttentionPhase.PREFILL, AttentionPhase.DECODE
LEVELS = ["none", "piecewise", "decode", "full"]


class Judgement:
    """What may run, by trying.

    Args:
        inputs: What the planner was told.
    """

    def __init__(self, inputs: PlanInputs) -> None:
        self.inputs = inputs
        self.config = inputs.config
        self.offered = inputs.candidates.attention
        report = inputs.candidates.kernels
        self.loaded = None if report is None else {name.split(" ")[0] for name in report.loaded}
        self.max_tokens = self.config.scheduler.max_num_batched_tokens
        self._runs: dict[str, list[str]] = {}

    # Attention

    def wish(self) -> tuple[str, str] | None:
        text = self.config.compute.attention_backend
        if text is None:
            return None
        if "=" not in text:
            return text, text
        parts = dict(part.split("=") for part in text.split(","))
        return parts["prefill"], parts["decode"]

    def request(self, need: AttentionNeed, size: int, phase: AttentionPhase) -> AttentionRequest:
        return AttentionRequest(
            num_heads=need.num_heads,
            num_kv_heads=need.num_kv_heads,
            head_dim=need.head_dim,
            dtype=self.config.compute.dtype,
            kv_dtype=self.config.kv_cache.dtype,
            block_size=size,
            phase=phase,
            sliding_window=need.sliding_window,
        )

    def layout(self, name: str, need: AttentionNeed, size: int) -> KVLayout:
        return self.offered[name].kv_layout(
            KVCacheSpec(
                num_kv_heads=need.num_kv_heads,
                head_dim=need.head_dim,
                dtype=self.config.kv_cache.dtype,
                block_size=size,
                sliding_window=need.sliding_window,
            )
        )

    def can_serve(self, name: str, need: AttentionNeed, size: int, phase: AttentionPhase) -> bool:
        backend, layout = self.offered[name], self.layout(name, need, size)
        is_there = self.loaded is None or backend.library in (None, *self.loaded)
        asked = self.config.kv_cache.asked_blocks or 0
        most = self.inputs.capabilities.claims.max_head_size
        return (
            name not in self.inputs.candidates.failed_backends
            and is_there
            and (most is None or need.head_dim <= most)
            and bool(backend.supports(self.request(need, size, phase)))
            and size in layout.block_sizes
            and (layout.slot_dtype == "int64" or asked * size <= 1 << 31)
        )

    def pairs(self, need: AttentionNeed, size: int) -> Iterator[tuple[str, str]]:
        """Every backend or pair that could serve such layers, whatever was asked for."""
        for first, second in product(self.offered, repeat=2):
            if first == second and self.can_serve(first, need, size, MIXED):
                yield first, second
            elif self.can_serve(first, need, size, PREFILL) and (
                self.can_serve(second, need, size, DECODE)
            ):
                one, other = self.layout(first, need, size), self.layout(second, need, size)
                if replace(one, block_sizes=()) == replace(other, block_sizes=()):
                    yield first, second

    def block_sizes(self) -> tuple[int, ...]:
        if "block_size" in self.config.explicit:
            return (self.config.kv_cache.block_size,)
        return (8, 16, 32, 64)

    def has_attention(self) -> bool:
        wish = self.wish()
        return any(
            all(
                any(wish in (None, pair) for pair in self.pairs(need, size))
                for need in self.inputs.needs.attention
            )
            for size in self.block_sizes()
            if size in self.named_sizes()
        )

    def named_sizes(self) -> set[int]:
        """Sizes that the device, the user or a backend speaks of."""
        named = {self.config.kv_cache.block_size, *self.inputs.capabilities.claims.kv_block_sizes}
        for backend in self.offered.values():
            assert backend.limits is not None
            named |= set(backend.limits.block_sizes)
            need = self.inputs.needs.attention[0]
            named |= set(self.layout(backend.name, need, 16).block_sizes) - {16}
        return named

    # Ops

    def objects(self, candidate: OpCandidate, site: OpSite) -> bool:
        """Whether a candidate cannot run at one place."""
        request = BindRequest(
            dtype=self.config.compute.dtype,
            loaded=None if self.loaded is None else frozenset(self.loaded),
        )
        least, most = token_bounds(candidate.tokens)
        return (
            candidate.name in self.inputs.candidates.failed
            or not candidate.when.check(request, site.properties)
            or self.is_left_alone(site)
            or not any(least <= n <= (most or n) for n in range(1, self.max_tokens + 1))
        )

    def is_left_alone(self, site: OpSite) -> bool:
        """Whether the user named an op inside this one, so that it has to do its own work."""
        switches = self.inputs.switches
        named = switches.off | switches.required | switches.implementations.keys()
        return any(
            one.path.startswith(f"{site.path}.") and one.key in named and one.key != site.key
            for one in self.inputs.needs.ops
        )

    def expected(self, site: OpSite, num_tokens: int) -> str:
        """What runs at one place and number of tokens, were it not inside a fused slot."""
        switches = self.inputs.switches
        wish = switches.implementations.get(site.key)
        able = []
        for one in self.inputs.candidates.ops:
            least, most = token_bounds(one.tokens)
            is_meant = least <= num_tokens <= (most or num_tokens)
            if one.key == site.key and is_meant and not self.objects(one, site):
                able.append(one)
        if wish == "native":
            return "native"
        if wish in [one.name for one in able]:
            return str(wish)
        is_on = site.key in switches.required or (switches.is_on and site.key not in switches.off)
        ranked = sorted(able, key=lambda one: (one.kind is CandidateKind.KERNEL, -one.priority))
        return ranked[0].name if ranked and is_on else "native"

    def owner(self, site: OpSite) -> OpSite | None:
        """The outermost place that does the work of this one at every number of tokens."""
        around = [one for one in self.inputs.needs.ops if site.path.startswith(f"{one.path}.")]
        for one in sorted(around, key=lambda one: len(one.path)):
            if "native" not in self.runs(one):
                return one
        return None

    def runs(self, site: OpSite) -> list[str]:
        if site.path not in self._runs:
            numbers = range(1, self.max_tokens + 1)
            self._runs[site.path] = [self.expected(site, number) for number in numbers]
        return self._runs[site.path]

    # Refusals

    def must_say(self) -> set[str]:
        """What a refusal must name; nothing: there is a plan, and a refusal is wrong."""
        return {*self._attention_faults(), *self._op_faults(), *self._weight_faults()}

    def _attention_faults(self) -> Iterator[str]:
        config = self.config
        asked = config.kv_cache.asked_blocks
        if not self.has_attention():
            if config.compute.attention_backend:
                yield f"attention_backend={config.compute.attention_backend}"
                if not set(self.wish() or ()) <= set(self.offered):
                    return
            for name, value in (
                ("block_size", config.kv_cache.block_size),
                ("kv_cache_dtype", config.kv_cache.dtype),
                ("dtype", config.compute.dtype),
                ("num_kv_blocks", asked),
            ):
                if name in config.explicit:
                    yield f"{name}={value} (asked for)"
            yield from self.offered
        elif asked is not None and asked < len(self.inputs.needs.attention):
            yield f"num_kv_blocks={asked} holds no token"

    def _op_faults(self) -> Iterator[str]:
        switches, sites = self.inputs.switches, self.inputs.needs.ops
        for key in switches.required | switches.implementations.keys() if sites else ():
            wish = switches.implementations.get(key)
            places = [one for one in sites if one.key == key]
            ops = [one for one in self.inputs.candidates.ops if one.name == wish]
            said = f"--custom-ops +{key}" if wish is None else f"--op {key}={wish}"
            if wish == "native":
                continue
            if wish is None:
                is_met = all(self.runs_something_of(key, one) for one in places)
            else:
                is_met = bool(ops) and not any(self.objects(ops[0], one) for one in places)
            if not is_met or not places:
                yield said

    def runs_something_of(self, key: str, site: OpSite) -> bool:
        """Whether an implementation of this very op runs there, or around it."""
        owner = self.owner(site)
        return set(self.runs(site)) != {"native"} if owner is None else owner.key == key

    def computes(self, need: WeightNeed) -> bool:
        return "acme/linear" not in self.inputs.candidates.failed and any(
            one.format == need.format
            and need.format in self.inputs.candidates.kept_formats
            and one.is_native
            and self.config.compute.dtype in one.activation_dtypes
            for one in self.inputs.candidates.quantization
        )

    def _weight_faults(self) -> Iterator[str]:
        for need in self.inputs.needs.weights:
            if need.is_quantized and not need.is_readable and not self.computes(need):
                yield f"stored as {need.format}"

    # Plans

    def check(self, plan: ExecutionPlan) -> None:
        """Every rule that a plan must keep."""
        self._check_attention(plan)
        self._check_cache(plan)
        self._check_ops(plan)
        self._check_weights(plan)
        self._check_mode(plan)
        self._check_fallbacks(plan)

    def _check_attention(self, plan: ExecutionPlan) -> None:
        size, wish = plan.rank_plan.block_size, self.wish()
        assert size == plan.kv_cache.block_size
        assert size in self.block_sizes()
        assert len(plan.attention) == len(self.inputs.needs.attention)
        for need, planned in zip(self.inputs.needs.attention, plan.attention, strict=True):
            one = planned.assignment
            pair = (one.backend, one.decode_backend or one.backend)
            assert one.layer_indices == need.layer_indices
            assert replace(one.request, needs_graph=False) == self.request(need, size, MIXED)
            assert one.layout == self.layout(one.backend, need, size)
            assert pair in list(self.pairs(need, size))
            if one.decode_backend is None:
                assert self.can_serve(one.backend, need, size, MIXED)
            assert wish in (None, pair)
            assert planned.author == ("core" if wish is None else "user") or (
                planned.author == "platform paper" and self._preferred() in pair
            )
            if wish is None:
                self._check_order(need, size, one.backend, one.decode_backend)
            named = {one.backend, one.decode_backend} | {p.name for p in planned.passed_over}
            assert named >= set(self.offered)
            assert all(passed.reason for passed in planned.passed_over)
        self._check_better_block_size(plan)

    def _preferred(self) -> str | None:
        need = self.inputs.needs.attention[0]
        return self.inputs.candidates.preferred(self.request(need, 16, MIXED))

    def _order(self) -> list[str]:
        return sorted(self.offered, key=lambda name: name != self._preferred())

    def _check_order(
        self, need: AttentionNeed, size: int, backend: str, decode: str | None
    ) -> None:
        able = [name for name in self._order() if self.can_serve(name, need, size, MIXED)]
        assert [backend] == able[:1] if able else decode is not None

    def _check_better_block_size(self, plan: ExecutionPlan) -> None:
        """At no claimed size would more layers have had a better backend."""
        order = self._order()
        needs = self.inputs.needs.attention
        planned = sum(
            len(need.layer_indices)
            * (len(order) if one.assignment.decode_backend else order.index(one.assignment.backend))
            for need, one in zip(needs, plan.attention, strict=True)
        )
        for size in self.block_sizes() if self.wish() is None else ():
            if size in self.inputs.capabilities.claims.kv_block_sizes:
                ranks = [self._rank(order, need, size) for need in needs]
                assert planned <= sum(ranks)

    def _rank(self, order: list[str], need: AttentionNeed, size: int) -> float:
        """How far down the list one that serves every layer of a kind stands, layer by layer."""
        able = (at for at, name in enumerate(order) if self.can_serve(name, need, size, MIXED))
        return next(able, math.inf) * len(need.layer_indices)

    def _check_cache(self, plan: ExecutionPlan) -> None:
        used = wasted = 0
        for planned in plan.attention:
            layout, layers = planned.assignment.layout, len(planned.assignment.layer_indices)
            for buffer in layout.buffers:
                size = math.prod(buffer.block_shape) * BYTES[buffer.dtype]
                used += layers * size
                wasted += layers * (-size % layout.alignment_bytes)
            blocks = plan.kv_cache.num_blocks or 0
            slots = {"int32": 1 << 31, "int64": 1 << 63}[layout.slot_dtype]
            assert blocks * plan.kv_cache.block_size <= slots
        assert plan.kv_cache.block_bytes == used + wasted
        assert plan.kv_cache.padding_bytes == wasted
        assert plan.kv_cache.dtype == self.config.kv_cache.dtype
        asked = self.config.kv_cache.asked_blocks
        assert asked in (None, plan.kv_cache.num_blocks)

    def _check_ops(self, plan: ExecutionPlan) -> None:
        planned = {path: one for one in plan.ops for path in one.assignment.paths}
        assert sorted(path for one in plan.ops for path in one.assignment.paths) == sorted(
            site.path for site in self.inputs.needs.ops
        )
        for site in self.inputs.needs.ops:
            one, owner = planned[site.path], self.owner(site)
            assert (one.key, dict(one.properties)) == (site.key, dict(site.properties))
            *ends, last = [piece.up_to for piece in one.assignment.pieces]
            assert last is None
            assert all(earlier is not None for earlier in ends)
            assert ends == sorted(ends, key=lambda end: end or 0)
            expected = ["native"] * self.max_tokens if owner else self.runs(site)
            assert one.inside == (owner.key if owner else "")
            for number in range(1, self.max_tokens + 1):
                piece = next(
                    piece
                    for piece in one.assignment.pieces
                    if piece.up_to is None or number <= piece.up_to
                )
                assert piece.implementation == expected[number - 1], (site.path, number)
            everywhere = {expected[0]} if len(set(expected)) == 1 else set()
            others = {op.name for op in self.inputs.candidates.ops if op.key == site.key}
            assert {passed.name for passed in one.passed_over} == others - everywhere
            assert all(passed.reason for passed in one.passed_over)
            for passed in one.passed_over if owner is None else ():
                if passed.reason.endswith((" comes first", " come first")):
                    self._check_precedence(site, passed.name, passed.reason)

    def _check_precedence(self, site: OpSite, name: str, reason: str) -> None:
        """What is said to come first runs wherever this candidate might, and nothing else does."""
        (meant,) = (one for one in self.inputs.candidates.ops if one.name == name)
        taken = {
            ran
            for number, ran in enumerate(self.runs(site), start=1)
            if _is_meant_for(meant, number)
        }
        assert set(reason.rpartition(" come")[0].split(" and ")) == taken
        assert "native" not in taken

    def _check_weights(self, plan: ExecutionPlan) -> None:
        assert [one.format for one in plan.weights] == [
            need.format for need in self.inputs.needs.weights
        ]
        for need, one in zip(self.inputs.needs.weights, plan.weights, strict=True):
            dtype = self.config.compute.dtype
            if not need.is_quantized:
                where = "as stored" if need.format == dtype else "converted at load"
            else:
                where = "as stored" if self.computes(need) else "dequantized at load"
            assert one.where == where
            as_is = need.is_quantized and where == "as stored"
            assert one.computed_as == (need.format if as_is else dtype)

    def _check_mode(self, plan: ExecutionPlan) -> None:
        level, graph = LEVELS.index(plan.mode.name), self.inputs.candidates.graph
        if self.config.compute.enforce_eager or not self.inputs.capabilities.claims.graph_capture:
            assert level == 0
        for planned in plan.attention:
            one = planned.assignment
            assert one.request.needs_graph == (level >= 2)
            for name, phase in (
                ((one.backend, MIXED),)
                if one.decode_backend is None
                else ((one.backend, PREFILL), (one.decode_backend, DECODE))
            ):
                support = self.offered[name].graph_support()
                assert LEVELS.index(support.level.value) >= level
                if level >= 2:
                    assert self.offered[name].supports(replace(one.request, phase=phase))
                if level >= 2 and graph is not None and graph.sizes and support.sizes:
                    assert set(graph.sizes) & set(support.sizes)
        if level:
            assert graph is not None
            assert LEVELS.index(graph.level.value) >= level
            self._check_graphs(plan.mode.graphs, level, graph)
        else:
            assert not plan.mode.graphs

    def _check_graphs(self, made: GraphAssignment, level: int, graph: GraphSupport) -> None:
        scheduler = self.config.scheduler
        assert (level >= 2) == bool(made.decode)
        assert level != 1 or made.piecewise
        assert level == 3 or not made.full
        assert not (made.full and made.piecewise)
        assert all(size <= scheduler.max_num_seqs for size in made.decode)
        for size in (*made.decode, *made.piecewise, *made.full):
            assert size <= scheduler.max_num_batched_tokens
            assert not graph.sizes or size in graph.sizes
        if graph.max_graphs is not None:
            num_layers = sum(len(need.layer_indices) for need in self.inputs.needs.attention)
            pieces = len(made.piecewise) * (num_layers + 1)
            assert len(made.decode) + len(made.full) + pieces <= graph.max_graphs

    def _check_fallbacks(self, plan: ExecutionPlan) -> None:
        keys = set()
        for site in self.inputs.needs.ops:
            ops = [one for one in self.inputs.candidates.ops if one.key == site.key]
            switches = self.inputs.switches
            is_wanted = (
                site.key in switches.required or (switches.is_on and site.key not in switches.off)
            ) and switches.implementations.get(site.key) != "native"
            unable = [one for one in ops if self.objects(replace(one, tokens=None), site)]
            is_missed = any(
                name == "native" and any(_is_meant_for(one, number) for one in unable)
                for number, name in enumerate(self.runs(site), start=1)
            )
            is_left = self.is_left_alone(site)
            if is_wanted and not is_left and not self.owner(site) and is_missed:
                keys.add(f"op {site.key}")
        told = {one.subject.partition(" of ")[0] for one in plan.fallbacks if one.level == "op"}
        assert told == keys
        weights = {one.format for one in plan.weights if one.where == "dequantized at load"}
        subjects = {one.subject for one in plan.fallbacks if one.level == "path"}
        assert {one for one in subjects if one.startswith("weights")} == {
            f"weights {name}" for name in weights
        }
        has_graph = self.inputs.capabilities.claims.graph_capture
        if plan.mode.name == "eager" and has_graph and not self.config.compute.enforce_eager:
            assert "graph capture" in subjects
        graphs = [one for one in plan.fallbacks if one.subject == "graph capture"]
        assert all("--enforce-eager" in one.reason for one in graphs)
        is_first = all(
            self._order()[0] in (one.assignment.backend, one.assignment.decode_backend)
            for one in plan.attention
        )
        if self.wish() is None and not is_first:
            singles = [one for one in plan.attention if one.assignment.decode_backend is None]
            backends = {one.assignment.backend for one in singles}
            if backends - {self._order()[0]}:
                assert any(one.startswith("attention") for one in subjects)
        if self.wish() is not None:
            assert not any(one.startswith("attention") for one in subjects)
        is_platform = any(one.level == "platform" for one in plan.fallbacks)
        assert is_platform == bool(self.inputs.platforms_not_here)
        assert all(one.reason for one in plan.fallbacks)
        assert len({(one.subject, one.reason) for one in plan.fallbacks}) == len(plan.fallbacks)
        if self.inputs.is_strict:
            assert not plan.fallbacks


def _is_meant_for(candidate: OpCandidate, number: int) -> bool:
    least, most = token_bounds(candidate.tokens)
    return least <= number and (most is None or number <= most)
