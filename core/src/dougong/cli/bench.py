"""``dougong bench``: a model's throughput and latency here, or a server's; now or against then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dougong.cli.bench_record import (
    BenchRecord,
    check_comparable,
    compare,
    load_record,
)
from dougong.cli.bench_serve import serve
from dougong.cli.bench_view import print_comparison, print_record
from dougong.cli.bench_workloads import Workload, run_latency, run_throughput
from dougong.cli.engine_options import with_engine_options
from dougong.cli.generate import open_llm, quiet_start
from dougong.cli.measured import peak_host_bytes, versions
from dougong.config.args import CommandDefault, EngineArgs
from dougong.config.decision import command_author

if TYPE_CHECKING:
    from dougong.engine.llm import LLM

app = typer.Typer(add_completion=False, no_args_is_help=True)
app.command()(serve)

_MOST_AT_ONCE = 256

NumRequests = Annotated[int, typer.Option(min=1, help="Requests to measure.")]
InputLen = Annotated[int, typer.Option(min=1, help="Random prompt tokens of each.")]
OutputLen = Annotated[int, typer.Option(min=1, help="Tokens each generates, end or not.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Save = Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the result there.")]
Against = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Compare with a result kept earlier.")
]


@app.command()
@with_engine_options
def throughput(
    args: EngineArgs,
    num_requests: NumRequests = 32,
    input_len: InputLen = 128,
    output_len: OutputLen = 128,
    is_json: AsJson = False,
    save: Save = None,
    against: Against = None,
) -> None:
    """Run many requests at once: how much work gets done."""
    work = _workload("throughput", args, num_requests, input_len, output_len)
    _run(args, work, run_throughput, is_json=is_json, save=save, against=against)


@app.command()
@with_engine_options
def latency(
    args: EngineArgs,
    num_requests: NumRequests = 5,
    input_len: InputLen = 128,
    output_len: OutputLen = 64,
    is_json: AsJson = False,
    save: Save = None,
    against: Against = None,
) -> None:
    """Run requests one after another: how long somebody waits."""
    work = _workload("latency", args, num_requests, input_len, output_len)
    _run(args, work, run_latency, is_json=is_json, save=save, against=against)


def _workload(
    kind: str, args: EngineArgs, num_requests: int, input_len: int, output_len: int
) -> Workload:
    return Workload(
        kind=kind,
        model=args.model,
        num_requests=num_requests,
        input_len=input_len,
        output_len=output_len,
    )


def _run(
    args: EngineArgs,
    work: Workload,
    measure: Callable[[LLM, Workload], dict[str, float]],
    *,
    is_json: bool,
    save: Path | None,
    against: Path | None,
) -> None:
    earlier = None if against is None else load_record(against)
    if earlier is not None and against is not None:
        check_comparable(work.to_json(), earlier, against)  # before anything takes time
    quiet_start(is_verbose=False)
    with open_llm(args, _requests_at_once(work)) as llm:
        record = _record(llm, work, measure(llm, work))
    if save is not None:
        record.save(save)
    rows = [] if earlier is None else compare(record, earlier)
    if is_json:
        compared = {row.name: row.ratio for row in rows}
        print(json.dumps(record.to_json() | ({"against": compared} if rows else {}), indent=2))
        return
    print_record(record)
    if earlier is not None:
        print_comparison(rows, record, earlier)


def _requests_at_once(work: Workload) -> CommandDefault:
    """How many requests run at once, where the user did not say."""
    if work.kind == "latency":
        value, reason = 1, "requests run one after another"
    elif work.num_requests <= _MOST_AT_ONCE:
        value, reason = work.num_requests, f"all {work.num_requests} requests at once"
    else:
        value = _MOST_AT_ONCE
        reason = f"of {work.num_requests} requests so many at once; --max-num-seqs says otherwise"
    return CommandDefault("max_num_seqs", value, command_author(f"bench {work.kind}"), reason)


def _record(llm: LLM, work: Workload, results: dict[str, float]) -> BenchRecord:
    report = llm.report
    return BenchRecord(
        workload=work.to_json(),
        platform=f"{report.platform} ({', '.join(report.devices)})",
        dtype=report.dtype,
        results=results | {"start_s": sum(report.seconds.values())},
        memory={
            "weights_bytes": report.memory.weights,
            "kv_cache_bytes": report.memory.kv_cache,
            "peak_host_bytes": peak_host_bytes(),
        },
        versions=versions(),
        decisions={decision.field: decision.value for decision in report.decisions},
    )
