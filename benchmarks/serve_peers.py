"""Dougong's server beside vLLM's, as clients see them: same model, same machine, alternating.

In every round each server is loaded once at each number of clients, in an order that rotates; the
others are frozen meanwhile. A client asks again as soon as it has its answer. Ratios are taken
within a round. Nothing else may run.

No round is begun that may not end in ``--minutes``, the starts counted. The peers must be there:
``python -m benchmarks.peers.install``, then ``prepare_model``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from dougong.cli.bench_serving.results import errors_of, results_of
from dougong.cli.bench_serving.run import run_load
from dougong.cli.bench_serving.workload import ROUTES, ServeWorkload
from dougong.cli.http_exchange import Target
from rich.console import Console

from benchmarks.console import table_console
from benchmarks.peers.install import default_cache
from benchmarks.peers.machine import cpu_ticks, load_average, machine_facts
from benchmarks.serving.report import Turn, as_json, print_report, summary
from benchmarks.serving.server import MODEL_NAME, Server, ServerError, ServerSpec
from benchmarks.serving.servers import OURS, known_servers

FIRST_PORT = 18_200
SLACK = 1.15
"""A round may take so much longer than the one before it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; returns 1 if a server failed."""
    begun_s = time.monotonic()
    options = parse_arguments(argv)
    # A plain SIGTERM would end us without ending the servers, which are frozen and would stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(stderr=True)
    specs = known_servers(options.cache, options.dougong_python)
    if unknown := [name for name in options.servers if name not in specs]:
        console.print(f"unknown servers {unknown}; known are {sorted(specs)}")
        return 2
    work = ServeWorkload(
        model=MODEL_NAME,
        route=options.route,
        input_len=options.input_len,
        output_len=options.output_len,
        spread=options.spread,
    )
    turns: list[Turn] = []
    failures: dict[str, str] = {}
    with ExitStack() as stack:
        logs = Path(options.logs or tempfile.mkdtemp(prefix="bench-servers-"))
        logs.mkdir(parents=True, exist_ok=True)
        chosen = [specs[name] for name in options.servers]
        servers = start(chosen, logs, work, stack, failures, console)
        round_s = 0.0
        for round_index in range(options.rounds):
            spent_s = time.monotonic() - begun_s
            if spent_s + round_s * SLACK > options.minutes * 60:
                console.print(f"no time for round {round_index}: {spent_s:.0f} s are spent")
                break
            for concurrency in options.concurrency:
                turns += one_turn(servers, work, concurrency, options.each, round_index, console)
            round_s = time.monotonic() - begun_s - spent_s
        facts = {server.spec.name: describe(server) for server in servers}
    print_report(table_console(), turns)
    console.print(f"all of it took {time.monotonic() - begun_s:.0f} s; logs in {logs}")
    if options.json:
        record = {
            "machine": machine_facts(),
            "workload": work.to_json(),
            "servers": facts,
            "failures": failures,
            "ratios_to_the_best_other": summary(turns),
            "turns": as_json(turns),
        }
        options.json.write_text(json.dumps(record, indent=1))
    return 1 if failures else 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serve_peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--cache", type=Path, default=default_cache(), help="folder of the peers (%(default)s)")
    add(
        "--dougong-python",
        type=Path,
        default=Path(sys.executable),
        help="interpreter with Dougong (default: this one)",
    )
    add(
        "--servers",
        nargs="+",
        default=[OURS, "vllm-eager-all", "vllm-compiled-all"],
        metavar="NAME",
        help="starting order (default: %(default)s); also vllm-eager, vllm-compiled, -iomp",
    )
    add("--route", choices=list(ROUTES), default="completions", help="(default: %(default)s)")
    add("--concurrency", type=int, nargs="+", default=[4, 16], help="clients (%(default)s)")
    add("--each", type=int, default=3, help="requests of each client (default: %(default)s)")
    add("--input-len", type=int, default=128, help="prompt tokens (default: %(default)s)")
    add("--output-len", type=int, default=128, help="tokens generated (default: %(default)s)")
    add("--spread", type=float, default=0.2, help="of both, so that clients part (%(default)s)")
    add("--rounds", type=int, default=4, help="at most (default: %(default)s)")
    add("--minutes", type=float, default=14.0, help="for all of it (default: %(default)s)")
    add("--logs", type=Path, help="folder for what the servers say (default: a temporary one)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there")
    return parser.parse_args(argv)


def start(
    specs: Sequence[ServerSpec],
    logs: Path,
    work: ServeWorkload,
    stack: ExitStack,
    failures: dict[str, str],
    console: Console,
) -> list[Server]:
    """Start and warm up one after another; one that fails is reported and left out."""
    ready: list[Server] = []
    for place, spec in enumerate(specs):
        server = Server(spec, FIRST_PORT + place, logs / f"{spec.name}.log")
        stack.enter_context(server)
        try:
            server.wait_until_up()
            warm_up = replace(work, num_requests=16, output_len=8, seed=1_000_000)
            asyncio.run(run_load(Target.of(server.url), warm_up))
        except ServerError as error:
            failures[spec.name] = str(error)
            console.print(f"{spec.name} failed and is left out: {error}", markup=False)
            server.close()
            continue
        console.print(f"{spec.name}: up in {server.start_s:.1f} s")
        server.freeze()
        ready.append(server)
    return ready


def one_turn(
    servers: Sequence[Server],
    work: ServeWorkload,
    concurrency: int,
    each: int,
    round_index: int,
    console: Console,
) -> list[Turn]:
    """Every server once; who begins rotates with the round, and so do the prompts."""
    load = replace(work, concurrency=concurrency, num_requests=concurrency * each, seed=round_index)
    shift = round_index % max(1, len(servers))
    turns = []
    for server in [*servers[shift:], *servers[:shift]]:
        load_before, (_, stolen_before) = load_average(), cpu_ticks()
        server.resume()
        try:
            run = asyncio.run(run_load(Target.of(server.url), load))
        finally:
            server.freeze()
        if errors := errors_of(run):
            console.print(f"{server.spec.name}: {errors}", markup=False)
        turn = Turn(
            server=server.spec.name,
            concurrency=concurrency,
            round_index=round_index,
            load_average=load_before,
            steal_s=round(cpu_ticks()[1] - stolen_before, 2),
            results=results_of(run),
        )
        rate = turn.results["output_tokens_per_s"]
        console.print(
            f"round {round_index}, {concurrency} clients, {turn.server}: {rate:.1f} tokens/s"
        )
        turns.append(turn)
    return turns


def describe(server: Server) -> dict[str, object]:
    """What belongs beside a server's figures."""
    return {
        **asdict(server.spec),
        "start_s": round(server.start_s, 1),
        "cpu_used_while_frozen_s": round(server.cpu_used_while_frozen_s(), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
