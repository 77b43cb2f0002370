"""From the command to the first token on the terminal: Dougong's ``generate`` beside vLLM.

Timed is a whole process, from its start to the first byte of the answer on its standard output:
interpreter, imports, weights, engine, prefill. Alternating; the file cache is warm for all, which
one untimed start per contender sees to.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.console import table_console
from benchmarks.peers.install import default_cache, python_of
from benchmarks.peers.machine import load_average, machine_facts

REPOSITORY = Path(__file__).resolve().parents[1]
PROMPT = "Why is the sky blue?"
OURS = "dougong"


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one contender.

    Attributes:
        contender: Name.
        round_index: Counted from 0.
        load_average: Over the minute before.
        first_token_s: From starting the process to the first byte of the answer.
        whole_s: Until the process had ended.
    """

    contender: str
    round_index: int
    load_average: float
    first_token_s: float
    whole_s: float


def main(argv: Sequence[str] | None = None) -> None:
    """Time all contenders in turn and print the table."""
    options = parse_arguments(argv)
    console = Console(stderr=True)
    commands = contender_commands(options)
    for name, command in commands.items():
        console.print(f"{name}: one untimed start")
        time_start(name, command, -1)
    starts = []
    for round_index in range(options.rounds):
        names = list(commands)
        shift = round_index % len(names)
        for name in [*names[shift:], *names[:shift]]:
            start = time_start(name, commands[name], round_index)
            console.print(f"round {round_index} {name}: {start.first_token_s:.2f} s")
            starts.append(start)
    print_report(table_console(), starts)
    if options.json:
        record = {
            "machine": machine_facts(),
            "commands": commands,
            "results": [
                {name: getattr(start, name) for name in Start.__slots__} for start in starts
            ],
        }
        options.json.write_text(json.dumps(record, indent=1))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_token",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--cache", type=Path, default=default_cache(), help="folder of the peers (%(default)s)")
    add(
        "--dougong-command",
        type=shlex.split,
        metavar="COMMAND",
        default=[
            str(Path(sys.executable).with_name("dougong")),
            *("generate", "--model", "demo", "--chat", PROMPT),
        ],
        help="one string, split as a shell does; streams an answer to standard output; empty: "
        "leave it out (default: %(default)s)",
    )
    add(
        "--vllm-modes",
        nargs="*",
        choices=("eager", "compiled"),
        default=["eager"],
        help="eager starts faster (default: %(default)s)",
    )
    add("--rounds", type=int, default=3, help="starts of each contender (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there")
    return parser.parse_args(argv)


def contender_commands(options: argparse.Namespace) -> dict[str, list[str]]:
    """Command line by contender."""
    model = str(options.cache / "model" / "bf16")
    vllm = [str(python_of(options.cache, "vllm")), "-m", "benchmarks.peers.first_token_vllm"]
    commands = {OURS: list(options.dougong_command)} if options.dougong_command else {}
    for mode in options.vllm_modes:
        arguments = ["--model", model, "--prompt", PROMPT, "--mode", mode]
        commands[f"vllm-{mode}"] = [*vllm, *arguments]
    return commands


def time_start(name: str, command: Sequence[str], round_index: int) -> Start:
    """Start one process and wait for its answer, then for its end.

    Raises:
        RuntimeError: The process failed, or ended without an answer.
    """
    load = load_average()
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=errors, bufsize=0
        )
        assert process.stdout is not None, "asked for above"
        first_token_s = None
        while piece := os.read(process.stdout.fileno(), 4096):
            if first_token_s is None and piece.strip():
                first_token_s = time.perf_counter() - start
        status = process.wait()
        whole_s = time.perf_counter() - start
        if status or first_token_s is None:
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{name} ended with status {status} and no answer:\n{said}")
    return Start(name, round_index, load, first_token_s, whole_s)


def print_report(console: Console, starts: Sequence[Start]) -> None:
    """Median per contender, and ours / theirs within a round."""
    seconds: dict[str, dict[int, float]] = {}
    for start in starts:
        seconds.setdefault(start.contender, {})[start.round_index] = start.first_token_s
    table = Table(title="seconds from command to first token")
    for column in ("contender", "median", "min", "max", f"{OURS} / it", "min", "max"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    ours = seconds.get(OURS, {})
    for name, by_round in seconds.items():
        values = list(by_round.values())
        row = [name, *(f"{x:.2f}" for x in (median(values), min(values), max(values)))]
        if found := [ours[r] / by_round[r] for r in by_round.keys() & ours.keys()]:
            row += [f"{x:.3f}" for x in (median(found), min(found), max(found))]
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
