"""One attention backend: what it takes, run on batches and held against the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.oracle.attention import AttentionTerms
from dougong_conformance.kit.paged import Geometry, PagedBatch, Span
from dougong_conformance.outcomes import CheckFailed
from dougong_conformance.subject import Subject, SubjectRaised
from dougong_conformance.suite.op_under_test import for_device

HEAD_SIZES = (64, 128, 80, 96, 32, 16, 48, 112, 256)
"""Asked in this order; a backend may state others."""
HEADS = ((8, 2), (6, 6), (4, 1))
"""Grouped, one for each, one for all."""


class BackendUnderTest:
    """One backend in one compute dtype.

    Args:
        subject: The plugin.
        judge: Of the case.
        name: Of the backend.
        dtype: Of queries, by name.
    """

    def __init__(self, subject: Subject, judge: Judge, name: str, dtype: str) -> None:
        self.subject, self.judge, self.name, self.dtype = subject, judge, name, dtype
        self.limits: Mapping[str, Any] = subject.facts.attention[name] or {}

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Stated, or what the platform claims."""
        return tuple(self.limits.get("block_sizes") or self.subject.facts.claims["kv_block_sizes"])

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """Stated, or usual ones."""
        return tuple(self.limits.get("head_sizes") or HEAD_SIZES)

    def request(self, **changed: Any) -> dict[str, Any]:
        """Fields of a request, usual ones where nothing is said."""
        return {
            "num_heads": 8,
            "num_kv_heads": 2,
            "head_dim": self.head_sizes[0],
            "dtype": self.dtype,
            "kv_dtype": self.dtype,
            "block_size": self.block_sizes[0],
            "phase": "mixed",
            **changed,
        }

    def supports(self, requests: Sequence[dict[str, Any]]) -> list[bool]:
        """Its answers."""
        answers = self.subject.call(
            "attention.supports", backend=self.name, requests=list(requests)
        )
        return [bool(one["is_supported"]) for one in answers]

    def first_supported(self, **changed: Any) -> dict[str, Any] | None:
        """A request that it takes, of the usual head sizes; ``None``: it takes none."""
        asked = [self.request(**{"head_dim": size, **changed}) for size in self.head_sizes]
        taken = (one for one, is_taken in zip(asked, self.supports(asked), strict=True) if is_taken)
        return next(taken, None)

    def any_supported(self, **changed: Any) -> dict[str, Any] | None:
        """As `first_supported`, in the first phase that it takes."""
        for phase in ("mixed", "decode", "prefill"):
            if (request := self.first_supported(**{"phase": phase, **changed})) is not None:
                return request
        return None

    def batch(
        self,
        request: Mapping[str, Any],
        spans: Sequence[Span],
        id: str,
        index: int = 0,
        **more: Any,
    ) -> PagedBatch:
        """Sequences with numbers of their own, in the backend's layout."""
        layout = self.subject.call("attention.layout", backend=self.name, request=dict(request))
        geometry = Geometry(
            num_heads=request["num_heads"],
            num_kv_heads=request["num_kv_heads"],
            head_dim=request["head_dim"],
            block_size=request["block_size"],
            reserved_blocks=layout["reserved_blocks"],
            dtype=getattr(torch, request["dtype"]),
            kv_dtype=getattr(torch, request["kv_dtype"]),
        )
        return PagedBatch(Draw(id, index, geometry.dtype), spans, geometry, **more)

    def run(
        self,
        request: Mapping[str, Any],
        batch: PagedBatch,
        steps: Sequence[Mapping[str, Any]],
        *,
        writes: Sequence[Mapping[str, Any]] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """What `attention.run` gives; raising fails the case.

        Args:
            request: Of the layer.
            batch: Its sequences.
            steps: That are computed.
            writes: What is written before; ``None``: as the batch has it.
            **more: For `attention.run`.
        """
        try:
            answer: dict[str, Any] = self.subject.call(
                "attention.run",
                backend=self.name,
                request=dict(request),
                scale=_scale(request),
                num_blocks=batch.num_blocks,
                writes=batch.writes() if writes is None else list(writes),
                steps=[dict(step) for step in steps],
                **more,
            )
        except SubjectRaised as exc:
            if "DeviceLost" in exc.raised.kinds:
                raise
            self.judge.fail(f"{self._at(request)} raised {exc.raised.kind}: {exc.raised.message}")
        return answer

    def check(
        self,
        request: Mapping[str, Any],
        spans: Sequence[Span],
        id: str,
        index: int = 0,
        **more: Any,
    ) -> dict[str, Any]:
        """One batch against the oracle; gives what ran."""
        return self.check_batch(request, self.batch(request, spans, id, index), **more)

    def check_batch(
        self, request: Mapping[str, Any], batch: PagedBatch, **more: Any
    ) -> dict[str, Any]:
        """As `check`, of a batch that is made already."""
        done = self.run(request, batch, [batch.step()], **more)
        self.compare(request, batch, done, 0)
        return done

    def compare(
        self,
        request: Mapping[str, Any],
        batch: PagedBatch,
        done: Mapping[str, Any],
        at: int,
        only: Sequence[int] | None = None,
    ) -> None:
        """One step's results against the oracle's, and the rows around them."""
        guard, out = done["guard"], done["outs"][at]
        num_tokens = sum(batch.spans[i].query for i in only or range(len(batch.spans)))
        expected = batch.expected(terms_of(request), only)
        try:
            self.judge.require(
                bool(out[:guard].isnan().all() and out[-guard:].isnan().all()),
                "it wrote outside of out",
            )
            self.judge.close(
                out[guard : guard + num_tokens],
                for_device(expected, self.subject),
                name="attention",
            )
        except CheckFailed as exc:
            exc.reason = f"{self._at(request)}: {exc.reason}"
            raise

    def _at(self, request: Mapping[str, Any]) -> str:
        usual = self.request()
        told = [
            f"{name}={value}"
            for name, value in request.items()
            if name in ("num_heads", "num_kv_heads", "head_dim", "block_size", "kv_dtype", "phase")
            or value != usual.get(name)
        ]
        return f"attention by {self.name} in {self.dtype} ({', '.join(told)})"


def backends_of(subject: Subject, judge: Judge, dtype: str) -> Iterator[BackendUnderTest]:
    """Every backend whose library is here and that takes the dtype at all.

    Raises:
        CheckFailed: There is none, and attention is no option.
    """
    missing = subject.call("attention.missing")
    found = 0
    for name in subject.facts.attention:
        if missing[name]:
            judge.warn(f"attention backend {name} was not run: {missing[name]}")
            continue
        backend = BackendUnderTest(subject, judge, name, dtype)
        if backend.any_supported():
            found += 1
            yield backend
    if not found:
        judge.fail(f"no attention backend takes {dtype}, which the platform claims")


def phase_of(spans: Sequence[Span]) -> str:
    """Which queries a step of such sequences holds."""
    kinds = {span.query == 1 for span in spans}
    return "mixed" if len(kinds) > 1 else "decode" if kinds == {True} else "prefill"


def terms_of(request: Mapping[str, Any]) -> AttentionTerms:
    """For the oracle."""
    return AttentionTerms(
        scale=_scale(request),
        sliding_window=request.get("sliding_window"),
        soft_cap=request.get("soft_cap"),
    )


def _scale(request: Mapping[str, Any]) -> float:
    return float(request["head_dim"] ** -0.5)
