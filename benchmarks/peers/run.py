"""Measure Dougong beside its peers: same model, same machine, alternating.

In every round each contender does every point once, in an order that rotates; the others are
frozen meanwhile. Ratios are taken within a round, so that a slow minute hurts both sides, and the
median over rounds is shown with the smallest and the largest. Nothing else may run.

The peers must be there: ``python -m benchmarks.peers.install``, then ``prepare_model``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from benchmarks.console import table_console
from benchmarks.peers.contender import Contender, ContenderError, ContenderSpec
from benchmarks.peers.contenders import known_contenders
from benchmarks.peers.install import default_cache
from benchmarks.peers.machine import cpu_ticks, load_average, machine_facts
from benchmarks.peers.points import STANDARD, name_of, parse_point
from benchmarks.peers.protocol import Point
from benchmarks.peers.report import Result, print_report

DEFAULT_CONTENDERS = (
    "dougong",
    "vllm-eager-all",
    "vllm-compiled-all",
    "transformers",
    "llamacpp-bf16",
)
WARM_UP_REPEAT = 1_000_000
"""A repetition no round reaches, so that a warm-up never measures a round's own prompts."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; returns 1 if a contender failed."""
    options = parse_arguments(argv)
    # A plain SIGTERM would end us without ending the contenders, which are frozen and would stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(stderr=True)
    specs = known_contenders(options.cache, options.dougong_python)
    if unknown := [name for name in options.contenders if name not in specs]:
        console.print(f"unknown contenders {unknown}; known are {sorted(specs)}")
        return 2
    chosen = [specs[name] for name in options.contenders]
    failures: dict[str, str] = {}
    results: list[Result] = []
    with ExitStack() as stack:
        logs = Path(options.logs or tempfile.mkdtemp(prefix="bench-peers-"))
        logs.mkdir(parents=True, exist_ok=True)
        contenders = start(chosen, logs, options.points, stack, failures, console)
        for round_index in range(options.rounds):
            for point in options.points:
                results += one_turn(contenders, replace(point, repeat=round_index), console)
        record = {
            "machine": machine_facts(),
            "contenders": {c.spec.name: describe(c) for c in contenders},
            "failures": failures,
            "rounds": options.rounds,
            "results": [asdict(result) for result in results],
        }
    print_report(table_console(), results, record, baseline=options.baseline)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))
    return 1 if failures else 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.run",
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
        "--contenders",
        nargs="+",
        default=list(DEFAULT_CONTENDERS),
        metavar="NAME",
        help="starting order (default: %(default)s); also vllm-eager, vllm-eager-all, llamacpp-q4",
    )
    add(
        "--points",
        nargs="+",
        type=parse_point,
        metavar="POINT",
        default=[parse_point(text) for text in STANDARD],
        help=f"REQUESTSxPROMPT+OUTPUT (default: {' '.join(STANDARD)})",
    )
    add("--rounds", type=int, default=5, help="repetitions of everything (default: %(default)s)")
    add("--baseline", default="dougong", help="ratios are this / the other (default: %(default)s)")
    add("--logs", type=Path, help="folder for what the runners print (default: a temporary one)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there")
    return parser.parse_args(argv)


def start(
    specs: Sequence[ContenderSpec],
    logs: Path,
    points: Sequence[Point],
    stack: ExitStack,
    failures: dict[str, str],
    console: Console,
) -> list[Contender]:
    """Load and warm up one after another; one that fails is reported and left out."""
    ready = []
    for spec in specs:
        contender = stack.enter_context(Contender(spec, logs / f"{spec.name}.log"))
        try:
            answer = contender.load()
            for point in points:
                warm_up = replace(point, repeat=WARM_UP_REPEAT, output_len=min(point.output_len, 8))
                contender.run(warm_up)
        except ContenderError as error:
            failures[spec.name] = str(error)
            console.print(f"{spec.name} failed and is left out: {error}", markup=False)
            contender.close()
            continue
        console.print(f"{spec.name}: loaded in {answer['load_s']:.1f} s")
        ready.append(contender)
    return ready


def one_turn(contenders: Sequence[Contender], point: Point, console: Console) -> list[Result]:
    """Every contender does one point; who begins rotates with the round."""
    shift = point.repeat % max(1, len(contenders))
    results = []
    for contender in [*contenders[shift:], *contenders[:shift]]:
        load = load_average()
        _, stolen_before = cpu_ticks()
        measurement = contender.run(point)
        _, stolen_after = cpu_ticks()
        result = Result(
            contender=contender.spec.name,
            point=name_of(point),
            round_index=point.repeat,
            load_average=load,
            steal_s=round(stolen_after - stolen_before, 2),
            measurement=measurement,
        )
        console.print(f"round {point.repeat} {result.point} {result.contender}: {result.rate:.1f}")
        results.append(result)
    return results


def describe(contender: Contender) -> dict[str, object]:
    """What belongs beside a contender's figures."""
    return {
        "load_s": contender.ready["load_s"],
        "versions": contender.ready["versions"],
        "options": dict(contender.spec.options),
        "environment": dict(contender.spec.environment),
        "details": contender.ready["details"],
        "cpu_used_while_frozen_s": round(contender.cpu_used_while_frozen_s(), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
