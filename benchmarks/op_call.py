"""What a call through an op costs above a call of the function that is bound to it.

Each case is one op of a small model (the sizes of SmolLM2-135M) on one token, bound in one of the
ways an implementation can be written. Timed, in CPU time of the thread, are ``op(x)``
and the bound function called directly with the same arguments, in alternating samples of equal
length; a ratio is taken within each pair of samples, and the median over pairs is shown with the
quartiles. The difference is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from timeit import Timer
from typing import Any

import torch
from dougong.contracts import OpAssignment, OpPiece, Registration
from dougong.contracts.registration import marked_objects
from dougong.cpu import kernels
from dougong.ops import (
    NATIVE,
    CustomOp,
    Embedding,
    FusedAddRMSNorm,
    GateUpAct,
    GreedySample,
    Linear,
    LMHead,
    RMSNorm,
    RotaryEmbedding,
    register_kernel,
)
from dougong.ops.binding import bind_ops
from dougong.ops.outline import outline_ops
from dougong.ops.registry import OpRegistry
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.console import table_console
from benchmarks.peers.machine import load_average, machine_facts

HIDDEN, INTERMEDIATE, VOCAB = 576, 1536, 49_152
HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
DTYPE, EPS = torch.bfloat16, 1e-5


@register_kernel("rms_norm", name="bench/function")
def function(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """A functional kernel that is one call into torch."""
    return nn.functional.rms_norm(x, weight.shape, weight, eps)


@CustomOp.register_oot("rms_norm", name="bench/class")
class OutOfTree(RMSNorm):
    """The same as an out-of-tree class."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """See `function`."""
        return nn.functional.rms_norm(x, (HIDDEN,), self.weight, self.eps)


REGISTRY = OpRegistry.from_registrations(
    Registration(mark=mark, target=target, plugin="bench", distribution="bench")
    for target, mark in marked_objects([vars(kernels), globals()])
)


@dataclass(frozen=True, slots=True)
class Case:
    """One op and what is called instead of it.

    Attributes:
        name: How it is bound.
        op: Bound.
        direct: The function bound to it.
        args: Of the op.
        extra: What ``direct`` gets after them.
    """

    name: str
    op: CustomOp
    direct: Callable[..., Any]
    args: tuple[Any, ...]
    extra: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """Medians over samples; median and quartiles of the ratios within pairs of samples."""

    case: str
    op_us: float
    direct_us: float
    ratio: float
    ratio_low: float
    ratio_high: float


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every case and print the table."""
    options = parse_arguments(argv)
    torch.set_num_threads(1)
    load = load_average()
    with torch.inference_mode():
        results = [measure(case, options.samples, options.sample_ms / 1e3) for case in cases()]
    print_report(table_console(), results)
    if options.json:
        record = {"machine": machine_facts(), "load_average": load}
        record["results"] = [asdict(result) for result in results]
        options.json.write_text(json.dumps(record, indent=1))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.op_call", description=__doc__)
    add = parser.add_argument
    add("--samples", type=int, default=101, help="pairs of samples per case (default: %(default)s)")
    add("--sample-ms", type=float, default=4, help="length of a sample (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there")
    return parser.parse_args(argv)


def cases() -> Iterator[Case]:
    """Every way to write an implementation, and every kernel of the CPU platform."""
    x, heads = row(HIDDEN), (row(HEADS, HEAD_DIM), row(KV_HEADS, HEAD_DIM))
    norm = bound(RMSNorm(HIDDEN, EPS, DTYPE), {})
    yield Case("native rms_norm", norm, norm.forward_native, (x,))
    norm = bound(RMSNorm(HIDDEN, EPS, DTYPE), {"rms_norm": (OpPiece("bench/function"),)})
    extra = norm.kernel_args()
    yield Case("function rms_norm", norm, function, (x,), extra)
    norm = bound(OutOfTree(HIDDEN, EPS, DTYPE), {"rms_norm": (OpPiece("bench/class"),)})
    yield Case("out-of-tree class rms_norm", norm, norm.forward_oot, (x,))
    pieces = (OpPiece("bench/function", 64), OpPiece(NATIVE))
    norm = bound(RMSNorm(HIDDEN, EPS, DTYPE), {"rms_norm": pieces})
    yield Case("function rms_norm of two by token count", norm, function, (x,), extra)
    embedding = Embedding(VOCAB, HIDDEN, DTYPE)
    tied = nn.ModuleList([embedding, LMHead(VOCAB, HIDDEN, DTYPE, embedding)])
    bound(tied, CPU)
    yield prepared(embedding, torch.tensor([7]))
    yield prepared(RMSNorm(HIDDEN, EPS, DTYPE), x)
    small = prepared(FusedAddRMSNorm(HIDDEN, EPS, DTYPE), row(HIDDEN), row(HIDDEN))
    yield from (small, to_its_method(small))
    table = torch.randn(16, HEAD_DIM)
    rotary = RotaryEmbedding(HEAD_DIM, HEAD_DIM, table, True, HEADS, KV_HEADS)
    small = prepared(rotary, torch.tensor([7]), *heads)
    yield from (small, to_its_method(small))
    yield prepared(Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM, False, DTYPE), x)
    yield prepared(GateUpAct(HIDDEN, INTERMEDIATE, "silu", False, DTYPE), x)
    yield prepared(GreedySample(), torch.randn(1, VOCAB))


CPU = {
    one.key: (OpPiece(one.name),) for one in REGISTRY.candidates() if one.name.startswith("cpu/")
}


def prepared(op: CustomOp, *args: torch.Tensor) -> Case:
    """An op with the CPU platform's kernel, beside the kernel object that was made for it."""
    if op.implementation == NATIVE:
        bound(op, CPU)
    made: object = getattr(op.kernel, "__self__", op.kernel)
    assert callable(made)
    return Case(op.implementation, op, made, args)


def to_its_method(case: Case) -> Case:
    """The same beside the least that Python can do: the kernel's ``__call__``, looked up before."""
    return Case(f"{case.name} (its bound method)", case.op, case.op.kernel, case.args)


def bound(module: Any, pieces: Mapping[str, tuple[OpPiece, ...]]) -> Any:
    """``module`` with random weights and these implementations; native where there is none."""
    for parameter in module.parameters():
        parameter.data.normal_()
    assignments = [
        OpAssignment(
            key=site.key, paths=(site.path,), pieces=pieces.get(site.key, (OpPiece(NATIVE),))
        )
        for site in outline_ops(module)
    ]
    bind_ops(module, REGISTRY, assignments)
    return module


def row(*shape: int) -> torch.Tensor:
    """Activations of one token."""
    return torch.randn(1, *shape).to(DTYPE)


def measure(case: Case, num_samples: int, sample_s: float) -> Result:
    """Alternate, and begin with the other one in every other pair."""
    timers = (timer(case.op, case.args), timer(case.direct, (*case.args, *case.extra)))
    number = max(1, round(sample_s / (min(timers[1].repeat(3, 100)) / 100)))
    samples: tuple[list[float], list[float]] = ([], [])
    for index in range(num_samples):
        for which in (0, 1) if index % 2 else (1, 0):
            samples[which].append(timers[which].timeit(number) / number * 1e6)
    ratios = [op / direct for op, direct in zip(*samples, strict=True)]
    op_us, direct_us = map(median, samples)
    low, middle, high = quantiles(ratios, n=4)
    return Result(case.name, op_us, direct_us, middle, low, high)


def timer(call: Callable[..., Any], args: tuple[Any, ...]) -> Timer:
    """A loop around a call whose arguments are names, as they are in a model."""
    names = {f"a{index}": value for index, value in enumerate(args)}
    code = f"call({', '.join(names)})"
    return Timer(code, timer=time.thread_time, globals={"call": call, **names})


def print_report(console: Console, results: Sequence[Result]) -> None:
    """One row per case."""
    table = Table(title="one token, one thread, microseconds per call; ratio within pairs")
    for column in ("bound", "op(x)", "direct", "difference", "ratio", "25 %", "75 %"):
        table.add_column(column, justify="left" if column == "bound" else "right")
    for one in results:
        numbers = (one.op_us, one.direct_us, one.op_us - one.direct_us)
        ratios = (one.ratio, one.ratio_low, one.ratio_high)
        table.add_row(one.case, *(f"{number:.3f}" for number in (*numbers, *ratios)))
    console.print(table)


if __name__ == "__main__":
    main()
