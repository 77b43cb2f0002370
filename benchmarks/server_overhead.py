"""How much of a step HTTP, tokenizing and streaming take, with 16 clients reading streams.

A server is started with its engine in a process of its own, so that everything but the engine is
the processor time of the server's process: what it used while the clients were reading, over the
time of the engine's steps meanwhile. Beside it stands how long the engine had nothing to step,
which is what that work and the pipe between the two really cost the clients.

Processor time per token is worth reading on a busy machine, too; the shares are not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dougong.cli.bench_serving.results import errors_of, results_of
from dougong.cli.bench_serving.run import run_load
from dougong.cli.bench_serving.workload import ROUTES, ServeWorkload
from dougong.cli.http_exchange import Target
from rich.console import Console
from rich.table import Table

from benchmarks.console import table_console
from benchmarks.peers.machine import load_average, machine_facts
from benchmarks.serving.server import MODEL_NAME, Server
from benchmarks.serving.servers import dougong

PORT = 18_300


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every asked number of clients."""
    options = parse_arguments(argv)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        spec = dougong(Path(sys.executable), options.model)
        with Server(spec, PORT, Path(folder) / "server.log") as server:
            server.wait_until_up()
            for round_index in range(options.rounds):
                for concurrency in options.concurrency:
                    rows.append(measure(server, options, concurrency, round_index))
                    Console(stderr=True).print(f"{concurrency} clients, round {round_index}")
    print_report(table_console(), rows)
    if options.json:
        record = {"machine": machine_facts(), "results": rows}
        options.json.write_text(json.dumps(record, indent=1))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.server_overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", default="demo", help="model reference (default: %(default)s)")
    add("--route", choices=list(ROUTES), default="chat", help="chat tokenizes (%(default)s)")
    add("--concurrency", type=int, nargs="+", default=[16], help="clients (%(default)s)")
    add("--each", type=int, default=4, help="requests of each client (default: %(default)s)")
    add("--input-len", type=int, default=128, help="prompt tokens (default: %(default)s)")
    add("--output-len", type=int, default=128, help="tokens generated (default: %(default)s)")
    add("--rounds", type=int, default=3, help="repetitions (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there")
    return parser.parse_args(argv)


def measure(
    server: Server, options: argparse.Namespace, concurrency: int, round_index: int
) -> dict[str, Any]:
    """One load; seconds over all of it, and shares."""
    work = ServeWorkload(
        model=MODEL_NAME,
        route=options.route,
        num_requests=concurrency * options.each,
        concurrency=concurrency,
        input_len=options.input_len,
        output_len=options.output_len,
        seed=round_index,
        num_warm_up=0,
    )
    target = Target.of(server.url)
    asyncio.run(run_load(target, replace(work, num_requests=concurrency, output_len=4)))
    load, cpu_s, before = load_average(), process_cpu_s(server.pid), engine_totals(server.url)
    run = asyncio.run(run_load(target, work))
    cpu_s, after = process_cpu_s(server.pid) - cpu_s, engine_totals(server.url)
    if errors := errors_of(run):
        raise RuntimeError(f"requests failed: {errors}")
    results = results_of(run)
    steps, steps_s = (after[name] - before[name] for name in ("steps", "step_seconds"))
    num_tokens = sum(answer.num_output for answer in run.answers)
    return {
        "concurrency": concurrency,
        "round": round_index,
        "load_average": load,
        "wall_s": run.seconds,
        "output_tokens_per_s": results["output_tokens_per_s"],
        "num_steps": steps,
        "step_ms": steps_s / steps * 1e3,
        "server_ms_per_step": cpu_s / steps * 1e3,
        "server_us_per_token": cpu_s / num_tokens * 1e6,
        "share_of_step": cpu_s / steps_s,
        "share_without_steps": max(0.0, 1 - steps_s / run.seconds),
        "client_us_per_token": run.client_cpu_s / num_tokens * 1e6,
    }


def process_cpu_s(pid: int) -> float:
    """Processor time of one process so far, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def engine_totals(url: str) -> dict[str, float]:
    """Steps and their seconds since the start."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(pairs[f"dougong_{name}_total"]) for name in ("steps", "step_seconds")}


def print_report(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """One line per load."""
    table = Table(title="the server's process, beside the engine's steps")
    heads = ("clients", "load", "tokens/s", "step, ms", "server, ms/step", "µs/token", "of a step")
    for head in (*heads, "engine without steps", "client, µs/token"):
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(
            str(row["concurrency"]),
            f"{row['load_average']:.1f}",
            f"{row['output_tokens_per_s']:.1f}",
            f"{row['step_ms']:.2f}",
            f"{row['server_ms_per_step']:.2f}",
            f"{row['server_us_per_token']:.0f}",
            f"{row['share_of_step']:.1%}",
            f"{row['share_without_steps']:.1%}",
            f"{row['client_us_per_token']:.0f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
