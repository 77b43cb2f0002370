"""What a step costs on the host: Dougong's scheduler and block pool beside vLLM's.

Both are driven alone, without a device, by the same loop (`benchmarks.scheduling.workload`): the
same prompts, the same answers, block size 16, one process per scenario and contender, alternating.
Timed are ``schedule()`` and taking the tokens in. The scenarios with 10,000 waiting and after
100,000 finished requests show whether a step's cost grows with them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.console import table_console
from benchmarks.peers.install import default_cache, python_of
from benchmarks.peers.machine import load_average, machine_facts
from benchmarks.scheduling.workload import Scenario

REPOSITORY = Path(__file__).resolve().parents[1]
OURS, THEIRS = "dougong", "vllm"
MODULES = {
    OURS: "benchmarks.scheduling.drive_dougong",
    THEIRS: "benchmarks.scheduling.drive_vllm",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run all scenarios for all rounds, print the table."""
    options = parse_arguments(argv)
    console = Console(stderr=True)
    pythons = {OURS: options.dougong_python, THEIRS: python_of(options.cache, "vllm")}
    results: list[dict[str, Any]] = []
    for round_index in range(options.rounds):
        order = [OURS, THEIRS] if round_index % 2 == 0 else [THEIRS, OURS]
        for scenario in scenarios(options.running, prefix_caching=not options.no_prefix_caching):
            for contender in order:
                load = load_average()
                answer = measure(contender, pythons[contender], scenario, options.cache)
                results.append(
                    {
                        "contender": contender,
                        "scenario": scenario.name,
                        "settings": asdict(scenario),
                        "round": round_index,
                        "load_average": load,
                        **answer,
                    }
                )
                total = answer["cost"]["total_us"]
                console.print(f"round {round_index} {contender}: {scenario.name}: {total:.0f} us")
    print_report(table_console(), results)
    if options.json:
        record = {"machine": machine_facts(), "results": results}
        options.json.write_text(json.dumps(record, indent=1))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scheduler_cost",
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
        "--running",
        type=int,
        nargs="+",
        default=[256, 1024],
        help="running requests (default: %(default)s)",
    )
    add("--rounds", type=int, default=3, help="repetitions of everything (default: %(default)s)")
    add("--no-prefix-caching", action="store_true", help="turn the prefix cache off on both sides")
    add("--json", type=Path, metavar="FILE", help="write everything measured there")
    return parser.parse_args(argv)


def scenarios(running: Sequence[int], *, prefix_caching: bool) -> list[Scenario]:
    """All states in which a step is timed, per number of running requests."""
    found = []
    for num_running in running:
        found += [
            Scenario(num_running, prefix_caching=prefix_caching),
            Scenario(num_running, num_waiting=10_000, prefix_caching=prefix_caching),
            Scenario(num_running, num_finished=100_000, prefix_caching=prefix_caching),
            Scenario(num_running, has_churn=True, prefix_caching=prefix_caching),
        ]
    return found


def measure(contender: str, python: Path, scenario: Scenario, cache: Path) -> dict[str, Any]:
    """One process, one scenario.

    Raises:
        RuntimeError: The process failed; the message carries the end of what it said.
    """
    command = [str(python), "-m", MODULES[contender], json.dumps(asdict(scenario))]
    environment = os.environ | {"DOUGONG_BENCH_MODEL": str(cache / "model" / "bf16")}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{contender} failed in {scenario.name}:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def print_report(console: Console, results: Sequence[Mapping[str, Any]]) -> None:
    """Medians over rounds; ratios within a round; growth against the same number running."""
    by_scenario: dict[str, dict[str, list[Mapping[str, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for result in results:
        by_scenario[result["scenario"]][result["contender"]].append(result["cost"])
    table = Table(title="microseconds per step (schedule + update), median over rounds")
    columns = ("scenario", OURS, "schedule", "update", "CPU", THEIRS, "schedule", "update", "CPU")
    for column in (*columns, f"{OURS} / {THEIRS}", "min", "max", "CPU ratio"):
        table.add_column(column, justify="left" if column == "scenario" else "right")
    for scenario, costs in by_scenario.items():
        row = [scenario]
        for contender in (OURS, THEIRS):
            fields = ("total_us", "schedule_us", "update_us", "cpu_us")
            row += [f"{median(cost[name] for cost in costs[contender]):,.0f}" for name in fields]
        pairs = list(zip(costs[OURS], costs[THEIRS], strict=True))
        ratios = [ours["total_us"] / theirs["total_us"] for ours, theirs in pairs]
        cpu_ratio = median(ours["cpu_us"] / theirs["cpu_us"] for ours, theirs in pairs)
        row += [f"{x:.3f}" for x in (median(ratios), min(ratios), max(ratios), cpu_ratio)]
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
