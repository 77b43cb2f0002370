"""Time of a decode step here and in another checkout of Dougong, alternating in one run.

Each side runs in a process of its own with that checkout's ``core/src`` first on the path: all
requests decode, and every call of the executor is timed. A round gives the median and the lowest
tenth of its steps; shown are medians over rounds, and here over there. The lowest tenth is what the
code costs; the median has the machine's moods in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.console import table_console
from benchmarks.peers.machine import load_average, machine_facts

HERE = Path(__file__).resolve().parent.parent / "core" / "src"
SIDES = ("here", "there")
FIRST_STEPS = 5
"""Steps left out at the beginning: prompts, and caches that fill."""


@dataclass(frozen=True, slots=True)
class Round:
    """One process: milliseconds per step."""

    num_requests: int
    side: str
    median_ms: float
    low_ms: float


def main(argv: Sequence[str] | None = None) -> None:
    """Measure both sides, or, in a child, one of them."""
    options = parse_arguments(argv)
    if options.child:
        print(json.dumps(step_times_ms(options.child, options.steps)))
        return
    if options.there is None or not (options.there / "dougong").is_dir():
        raise SystemExit("--there must name the core/src of another checkout")
    load, rounds = load_average(), []
    for number in options.requests:
        for index in range(options.rounds):
            for side in SIDES if index % 2 else SIDES[::-1]:
                rounds.append(run_round(number, side, options))
                print(rounds[-1], file=sys.stderr)
    print_report(table_console(), options.requests, rounds)
    if options.json:
        record = {"machine": machine_facts(), "load_average": load}
        record["rounds"] = [asdict(one) for one in rounds]
        options.json.write_text(json.dumps(record, indent=1))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_time", description=__doc__)
    add = parser.add_argument
    add("--there", type=Path, metavar="CORE_SRC", help="core/src of the other checkout")
    add("--requests", type=int, nargs="+", default=[1, 32], help="default: 1 32")
    add("--steps", type=int, default=200, help="decode steps of a round (default: %(default)s)")
    add("--rounds", type=int, default=5, help="of each side (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there")
    add("--child", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def run_round(num_requests: int, side: str, options: argparse.Namespace) -> Round:
    """One side in a process of its own."""
    source = HERE if side == "here" else options.there.resolve()
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(num_requests)]
    path = os.pathsep.join((str(source), str(HERE.parent.parent)))
    done = subprocess.run(
        [*command, "--steps", str(options.steps)],
        env={**os.environ, "PYTHONPATH": path, "DOUGONG_LOG_LEVEL": "ERROR"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    times = sorted(json.loads(done.stdout.splitlines()[-1]))
    return Round(num_requests, side, median(times), times[len(times) // 10])


def step_times_ms(num_requests: int, num_steps: int) -> list[float]:
    """Milliseconds of each decode step of the engine that is first on the path."""
    from dougong import LLM, SamplingParams
    from dougong.executor import UniprocExecutor

    times: list[float] = []
    execute = UniprocExecutor.execute

    def timed(self: UniprocExecutor, *args: Any) -> Any:
        began = time.perf_counter()
        result = execute(self, *args)
        times.append((time.perf_counter() - began) * 1e3)
        return result

    # This process does nothing else; mypy would refuse a plain assignment to a method.
    setattr(UniprocExecutor, "execute", timed)  # noqa: B010
    prompts = [[1000 + 7 * row + 31 * place for place in range(64)] for row in range(num_requests)]
    params = SamplingParams(temperature=0, max_tokens=num_steps, ignore_eos=True)
    with LLM("demo", max_num_seqs=num_requests, enable_prefix_caching=False,
             max_model_len=1024, in_own_process=False) as llm:  # fmt: skip
        llm.generate(prompt_token_ids=prompts, sampling_params=params)
    return times[FIRST_STEPS:]


def print_report(console: Console, requests: Sequence[int], rounds: Sequence[Round]) -> None:
    """Medians over rounds, and here over there."""
    table = Table(title="milliseconds per step; a ratio below 1: here is faster")
    for column in ("requests", "steps", "here", "there", "here / there"):
        table.add_column(column, justify="left" if column == "steps" else "right")
    for number in requests:
        for what, field in (("median", "median_ms"), ("lowest tenth", "low_ms")):
            here, there = (
                median(
                    getattr(one, field)
                    for one in rounds
                    if (one.num_requests, one.side) == (number, side)
                )
                for side in SIDES
            )
            table.add_row(str(number), what, f"{here:.2f}", f"{there:.2f}", f"{here / there:.3f}")
    console.print(table)


if __name__ == "__main__":
    main()
