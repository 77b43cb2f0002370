"""Random platforms, models and wishes for the planner; a number gives the same ones every time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from dougong.config.op_switches import OpSwitches
from dougong.contracts import (
    AtLeast,
    AtMost,
    AttentionLimits,
    AttentionPhase,
    Between,
    GraphLevel,
    GraphSupport,
    KernelReport,
    MultipleOf,
    Needs,
    QuantizationSupport,
)
from dougong.describe import AttentionNeed, CandidateKind, OpCandidate, OpSite, WeightNeed
from dougong.planner import PlanInputs
from tests.unit.planner.paper import PaperBackend, named, need, paper_inputs, site

T = TypeVar("T")

DTYPES = ("bfloat16", "float32")
FP8 = "float8_e4m3fn"
BLOCK_SIZES = (16, 32, 64)
BACKENDS = ("acme/a", "acme/b", "acme/c")
KEYS = ("norm", "act", "slot")
LIBRARIES = ("kit", "box")
MAX_TOKENS = 24
PHASES = (*[tuple(AttentionPhase)] * 4, (AttentionPhase.PREFILL,), (AttentionPhase.DECODE,))
RANGES = (AtMost(8), AtLeast(9), Between(4, 20), AtLeast(MAX_TOKENS + 1), AtMost(MAX_TOKENS))
WEIGHTS = (
    WeightNeed(format="bfloat16", is_quantized=False, is_readable=True, num_bytes=100),
    WeightNeed(format="q4_1", is_quantized=True, is_readable=True, num_bytes=100),
    WeightNeed(format="q8_0", is_quantized=True, is_readable=True),
    WeightNeed(format="awq", is_quantized=True, is_readable=False),
)
SITES: tuple[OpSite, ...] = (
    site("norm", "a.norm", size=64),
    site("norm", "b.norm", size=96),
    site("act", "a.act"),
    site("slot", "a.slot", size=64),
    site("norm", "a.slot.norm", size=64),
    site("act", "a.slot.act"),
    site("slot", "b.slot", size=96),
    site("slot", "b.slot.in", size=64),
    site("act", "b.slot.in.act"),
    site("act", "sampler.act"),
)


def scenario(number: int) -> PlanInputs:
    """All that planning is told; about every third can work."""
    dice = _Dice(number)
    dice.oddity = dice.choice((0.02, 0.25))
    offered = named(*(dice.backend(name) for name in BACKENDS[: dice.choice((1, 2, 3, 3))]))
    ops = dice.op_candidates()
    can_fail = (*offered, *(one.name for one in ops), "acme/linear")  # in either namespace
    preferred = dice.choice(tuple(offered)) if dice.happens(0.3) else None
    return paper_inputs(
        needs={
            "attention": dice.attention(),
            "weights": tuple(dice.some_of(WEIGHTS[: 4 if dice.happens(0.3) else 3], 1)),
            "ops": SITES if dice.happens(0.7) else tuple(dice.some_of(SITES)),
        },
        config=dice.config(tuple(offered)),
        candidates={
            "attention": offered,
            "preferred": lambda request: preferred,
            "ops": ops,
            "quantization": tuple(dice.quantization() for _ in range(dice.randint(0, 2))),
            "kept_formats": frozenset(dice.often_all(("q4_1", "awq", "fp8"))),
            "graph": dice.graph() if dice.happens(0.7) else None,
            "kernels": dice.kernels() if dice.happens(0.5) else None,
            "failed": dice.failures(can_fail),
            "failed_backends": dice.failures(can_fail),
        },
        claims={
            "kv_dtypes": (*DTYPES, FP8),
            "kv_block_sizes": tuple(dice.some_of(BLOCK_SIZES, 1)),
            "graph_capture": dice.happens(0.6),
            "max_head_size": dice.choice((64, 96)) if dice.happens(0.05) else None,
        },
        switches=dice.switches(),
        platforms_not_here={"acme": "absent"} if dice.happens(0.1) else {},
        is_strict=dice.happens(0.15),
    )


class _Dice(Random):
    """Throws the parts of a scenario.

    Attributes:
        oddity: How likely a backend does not take something.
    """

    oddity: float = 0.0

    def happens(self, share: float) -> bool:
        return self.random() < share

    def some_of(self, values: Sequence[T], least: int = 0) -> list[T]:
        """In any order."""
        return self.sample(values, self.randint(least, len(values)))

    def often_all(self, values: Sequence[T]) -> list[T]:
        return self.some_of(values, 1) if self.happens(self.oddity) else list(values)

    def failures(self, names: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(self.some_of(names) if self.happens(0.2) else (), "fault")

    def attention(self) -> tuple[AttentionNeed, ...]:
        size = self.choice((64, 64, 64, 80, 128))
        if self.happens(0.6):
            return (need(0, 1, 2, head_dim=size),)
        return need(0, 2, 3, 4, head_dim=size), need(1, head_dim=size, sliding_window=8)

    def backend(self, name: str) -> PaperBackend:
        odd = self.oddity
        limits = AttentionLimits(
            dtypes=frozenset(self.often_all(DTYPES)),
            kv_dtypes=frozenset(self.some_of((*DTYPES, FP8), 1) if self.happens(odd) else ()),
            head_sizes=frozenset(self.some_of((64, 80, 128), 1) if self.happens(odd) else ()),
            block_sizes=tuple(self.some_of(BLOCK_SIZES, 1) if self.happens(odd) else ()),
            phases=frozenset(self.choice(PHASES)),
            sliding_window=not self.happens(odd),
            graph=self.happens(0.7),
        )
        return PaperBackend(
            name,
            limits,
            layout="other" if self.happens(odd) else "plain",
            block_sizes=tuple(self.some_of(BLOCK_SIZES, 1) if self.happens(odd) else ()),
            is_flat=self.happens(odd / 2),
            library=self.choice(LIBRARIES) if self.happens(0.2) else None,
            graph=self.graph(),
            alignment_bytes=self.choice((1, 512)) if self.happens(odd) else 3072,
            slot_dtype="int32" if self.happens(odd * 2) else "int64",
        )

    def graph(self) -> GraphSupport:
        sizes = self.some_of((1, 8, 16, 256)) if self.happens(0.2) else ()
        levels = (*GraphLevel, GraphLevel.FULL, GraphLevel.FULL)
        return GraphSupport(
            self.choice(levels), self.choice((0, 1)) if self.happens(0.1) else None, tuple(sizes)
        )

    def op_candidates(self) -> tuple[OpCandidate, ...]:
        made = []
        for key in KEYS:
            for number in range(self.randint(0, 3)):
                options: dict[str, Any] = {}
                if self.happens(0.15):
                    options["dtype"] = self.choice(DTYPES)
                if self.happens(0.25):
                    options["size"] = MultipleOf(self.choice((32, 64)))
                if self.happens(0.15):
                    options["library"] = self.choice(LIBRARIES)
                made.append(
                    OpCandidate(
                        key=key,
                        name=f"acme/{key}{number}",
                        origin="acme 1.0",
                        kind=self.choice(tuple(CandidateKind)),
                        when=Needs(**options),
                        tokens=self.choice(RANGES) if self.happens(0.3) else None,
                        priority=self.randint(-1, 1),
                    )
                )
        return tuple(self.sample(made, len(made)))

    def switches(self) -> OpSwitches:
        required, off, chosen = set(), set(), {}
        for key in KEYS:
            wish = self.choice("++--==nx") if self.happens(0.18) else ""
            if wish == "+":
                required.add(key)
            elif wish == "-":
                off.add(key)
            elif wish == "n":
                chosen[key] = "native"
            elif wish:
                chosen[key] = "acme/gone" if wish == "x" else f"acme/{key}0"
                required |= {key} if self.happens(0.3) else set()
        return OpSwitches(
            is_on=self.happens(0.8),
            required=frozenset(required),
            off=frozenset(off),
            implementations=chosen,
        )

    def quantization(self) -> QuantizationSupport:
        return QuantizationSupport(
            format=self.choice(("q4_1", "awq", "fp8")),
            storage="uint8",
            activation_dtypes=tuple(self.often_all(DTYPES)),
            is_native=self.happens(0.7),
            kernel="acme/linear",
        )

    def kernels(self) -> KernelReport:
        loaded = self.some_of(LIBRARIES, 1)
        missing = {name: "not found" for name in LIBRARIES if name not in loaded}
        return KernelReport(tuple(f"{name} 1.0" for name in loaded), missing)

    def config(self, names: tuple[str, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {"memory_bytes": 1 << 60, "max_num_batched_tokens": MAX_TOKENS}
        wishes: dict[str, Sequence[Any]] = {
            "attention_backend": (*names, "acme/gone", *(self.pair(names) for _ in range(6))),
            "kv_dtype": (*DTYPES, FP8),
            "dtype": DTYPES,
            "block_size": (8, *BLOCK_SIZES),
            "asked_blocks": (1, 2, 100, 2**27 + 1),
            "enforce_eager": (True,),
        }
        made |= {name: self.choice(values) for name, values in wishes.items() if self.happens(0.2)}
        return made

    def pair(self, names: tuple[str, ...]) -> str:
        return f"prefill={self.choice(names)},decode={self.choice(names)}"
