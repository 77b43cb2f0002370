"""How much of a decode step is not the model: scheduling, inputs, sampling, taking tokens in.

Runs the engine in this process with all requests decoding, and reads the engine's own timers
before and after a window of steps. Two shares are given: everything but the model's forward
(logits included), and the same with sampling counted as the model's work. With ``--front-end`` the
same requests go through ``LLM.generate``, and what that takes beyond the engine's steps is added.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dougong.config import EngineArgs
from dougong.engine.core import EngineCore
from dougong.engine.llm import LLM
from dougong.messages import Request, SamplingParams
from rich.console import Console
from rich.table import Table

from benchmarks.console import table_console
from benchmarks.peers.machine import load_average, machine_facts
from benchmarks.peers.protocol import Point

WARM_UP_STEPS = 8
SLACK_STEPS = 4
"""Tokens left to generate when the window ends, so that nobody finishes inside it."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every asked number of requests."""
    options = parse_arguments(argv)
    args = EngineArgs(
        model=options.model,
        dtype=options.dtype,
        enable_prefix_caching=False,
        max_model_len=2048,
        max_num_seqs=max(options.requests),
    )
    rows = []
    engine = EngineCore.start(args)
    try:
        for num_requests in options.requests:
            rows += [measure(engine, num_requests, options.steps, i) for i in range(options.rounds)]
    finally:
        engine.shutdown()
    print_report(table_console(), rows)
    record: dict[str, Any] = {"machine": machine_facts(), "results": rows}
    if options.front_end:
        record["front_end"] = measure_front_end(args, max(options.requests), options.steps)
        print(json.dumps(record["front_end"], indent=1))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine_overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", default="demo", help="model reference (default: %(default)s)")
    add("--dtype", default="bfloat16", help="compute dtype (default: %(default)s)")
    add(
        "--requests",
        type=int,
        nargs="+",
        default=[1, 8, 32],
        help="decoding at once (default: %(default)s)",
    )
    add("--steps", type=int, default=100, help="steps in a window (default: %(default)s)")
    add("--rounds", type=int, default=3, help="windows per number (default: %(default)s)")
    add("--front-end", action="store_true", help="also through LLM.generate, for the largest")
    add("--json", type=Path, metavar="FILE", help="write everything measured there")
    return parser.parse_args(argv)


def measure(
    engine: EngineCore, num_requests: int, num_steps: int, round_index: int
) -> dict[str, Any]:
    """One window of decode steps; milliseconds per step by part."""
    point = Point(num_requests, 128, num_steps + WARM_UP_STEPS + SLACK_STEPS, round_index)
    ids = add_requests(engine, point)
    started: set[str] = set()
    while len(started) < num_requests:
        started.update(delta.request_id for delta in engine.step())
    for _ in range(WARM_UP_STEPS):
        engine.step()
    load, before, begin = load_average(), totals(engine), time.perf_counter()
    for _ in range(num_steps):
        engine.step()
    wall_s, after = time.perf_counter() - begin, totals(engine)
    engine.abort(ids)
    part_ms = {
        name.removesuffix("_s") + "_ms": (after[name] - before[name]) / num_steps * 1e3
        for name in after
    }
    step_ms = wall_s / num_steps * 1e3
    return {
        "num_requests": num_requests,
        "round": round_index,
        "load_average": load,
        "step_ms": step_ms,
        **part_ms,
        "share_beside_forward": 1 - part_ms["forward_ms"] / step_ms,
        "share_beside_model": 1 - (part_ms["forward_ms"] + part_ms["sample_ms"]) / step_ms,
    }


def add_requests(engine: EngineCore, point: Point) -> list[str]:
    """Let the point's requests wait; returns their ids."""
    sampling = SamplingParams(max_tokens=point.output_len, ignore_eos=True, temperature=0.0)
    ids = []
    for index, prompt in enumerate(point.prompts()):
        request_id = f"{point.num_requests}-{point.repeat}-{index}"
        engine.add(
            Request(request_id=request_id, prompt_token_ids=tuple(prompt), sampling_params=sampling)
        )
        ids.append(request_id)
    return ids


def totals(engine: EngineCore) -> dict[str, float]:
    """Seconds per part since the start, of the engine and of its one rank."""
    stats = engine.stats()
    (rank,) = stats.ranks
    parts: dict[str, float] = {
        name: float(stats.times[name]) for name in ("schedule_s", "update_s", "model_s")
    }
    return parts | {name: float(rank[name]) for name in ("prepare_s", "forward_s", "sample_s")}


def measure_front_end(args: EngineArgs, num_requests: int, num_steps: int) -> dict[str, float]:
    """The whole way a user takes: seconds of ``LLM.generate``, and the share beside its steps."""
    point = Point(num_requests, 128, num_steps, 0)
    sampling = SamplingParams(max_tokens=num_steps, ignore_eos=True, temperature=0.0)
    prompts = point.prompts()
    with LLM(**{name: getattr(args, name) for name in args.explicit}) as llm:
        llm.generate(prompt_token_ids=prompts, sampling_params=sampling, progress=False)
        before, begin = llm.stats().times, time.perf_counter()
        llm.generate(prompt_token_ids=prompts, sampling_params=sampling, progress=False)
        wall_s, after = time.perf_counter() - begin, llm.stats().times
    steps_s = after["step_s"] - before["step_s"]
    return {"wall_s": wall_s, "steps_s": steps_s, "share_beside_steps": 1 - steps_s / wall_s}


def print_report(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """One line per window."""
    table = Table(title="milliseconds per decode step")
    parts = ("schedule_ms", "prepare_ms", "forward_ms", "sample_ms", "update_ms")
    heads = [name.removesuffix("_ms") for name in parts]
    for column in ("requests", "load", "step", *heads, "beside forward", "beside model"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["num_requests"]),
            f"{row['load_average']:.1f}",
            f"{row['step_ms']:.2f}",
            *(f"{row[name]:.3f}" for name in parts),
            f"{row['share_beside_forward']:.1%}",
            f"{row['share_beside_model']:.1%}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
