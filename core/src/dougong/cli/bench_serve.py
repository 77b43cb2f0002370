"""``dougong bench serve``: a server under load, as its clients see it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.request import Request, urlopen

import typer

from dougong.cli.bench_record import BenchRecord, check_comparable, compare, load_record
from dougong.cli.bench_serving.plot import check_plot, svg_of
from dougong.cli.bench_serving.results import errors_of, results_of
from dougong.cli.bench_serving.run import ServeRun, run_load
from dougong.cli.bench_serving.server import own_server
from dougong.cli.bench_serving.view import print_serve_record
from dougong.cli.bench_serving.workload import ServeWorkload
from dougong.cli.bench_view import print_comparison
from dougong.cli.bench_workloads import progress_bar
from dougong.cli.engine_options import with_engine_options
from dougong.cli.http_exchange import Target
from dougong.cli.measured import versions
from dougong.cli.model_argument import is_model_given, model_of
from dougong.config.args import EngineArgs
from dougong.errors import ConfigError, DougongError

_LOAD, _OUT = "Load", "Result"
_ASK_TIMEOUT_S = 30.0


@with_engine_options
def serve(
    context: typer.Context,
    args: EngineArgs,
    reference: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A server of it is started. As --model takes it."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="A server that runs already, of any make; no MODEL then.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DOUGONG_API_KEY", help="Shown to that server.")
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="The model to ask for. Default: the first that it has.")
    ] = None,
    route: Annotated[
        str, typer.Option(help="completions or chat.", rich_help_panel=_LOAD)
    ] = "completions",
    num_prompts: Annotated[
        int, typer.Option(min=1, help="Requests to measure.", rich_help_panel=_LOAD)
    ] = 64,
    input_len: Annotated[
        int, typer.Option(min=1, help="Random prompt tokens of each.", rich_help_panel=_LOAD)
    ] = 128,
    output_len: Annotated[
        int, typer.Option(min=1, help="Tokens each generates.", rich_help_panel=_LOAD)
    ] = 128,
    spread: Annotated[
        float,
        typer.Option(
            help="Lengths differ evenly by up to this share, 0 to 1.", rich_help_panel=_LOAD
        ),
    ] = 0.0,
    request_rate: Annotated[
        float, typer.Option(help="Requests per second, or inf.", rich_help_panel=_LOAD)
    ] = math.inf,
    burstiness: Annotated[
        float,
        typer.Option(
            help="1: arrivals are independent; below: bursts; above: even.", rich_help_panel=_LOAD
        ),
    ] = 1.0,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Requests at once, at most. Default: any.", rich_help_panel=_LOAD),
    ] = None,
    num_warm_up: Annotated[
        int, typer.Option(min=0, help="Requests before the measured ones.", rich_help_panel=_LOAD)
    ] = 2,
    ignore_eos: Annotated[
        bool,
        typer.Option(
            help="Generate every token; OpenAI's own servers do not know it.",
            rich_help_panel=_LOAD,
        ),
    ] = True,
    temperature: Annotated[
        float, typer.Option(help="Of every request.", rich_help_panel=_LOAD)
    ] = 0.0,
    vocab_size: Annotated[
        int, typer.Option(help="Random token ids are below it.", rich_help_panel=_LOAD)
    ] = 10_000,
    seed: Annotated[int, typer.Option(help="Of all draws.", rich_help_panel=_LOAD)] = 0,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUT)
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the result there.", rich_help_panel=_OUT),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare with a result kept earlier.", rich_help_panel=_OUT
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw it.", rich_help_panel=_OUT)
    ] = None,
) -> None:
    """Load a server as clients do: latency and throughput, at a rate or so many at once."""
    if url is not None and is_model_given(context, reference):
        raise ConfigError("--url names a server that runs, and MODEL starts one. Give one of them.")
    check_plot(plot)
    args = replace(args, model=model_of(context, args.model, reference))
    work = ServeWorkload(
        model=served_model_name or ("" if url else args.model),
        route=route,
        num_requests=num_prompts,
        input_len=input_len,
        output_len=output_len,
        spread=spread,
        request_rate=request_rate,
        burstiness=burstiness,
        concurrency=concurrency,
        num_warm_up=num_warm_up,
        ignore_eos=ignore_eos,
        temperature=temperature,
        vocab_size=vocab_size,
        seed=seed,
    )
    earlier = None if against is None else load_record(against)
    with _server(url, args, work.model) as address:
        target = Target.of(address, api_key if url else None)
        work = work if work.model else replace(work, model=_first_model(target))
        if earlier is not None and against is not None:
            check_comparable(work.to_json(), earlier, against)
        with progress_bar(work.num_requests) as advance:
            run = asyncio.run(run_load(target, work, advance))
        record = _record(work, run, url, args, _server_version(target))
    _check_any_whole(run)
    if save is not None:
        record.save(save)
    if plot is not None:
        plot.write_text(svg_of(run, work), "utf-8")
    rows = [] if earlier is None else compare(record, earlier)
    if is_json:
        compared = {row.name: row.ratio for row in rows}
        told = {**record.to_json(), "errors": errors_of(run)}
        print(json.dumps(told | ({"against": compared} if rows else {}), indent=2))
        return
    print_serve_record(record, run)
    if earlier is not None:
        print_comparison(rows, record, earlier)


@contextlib.contextmanager
def _server(url: str | None, args: EngineArgs, model_name: str) -> Iterator[str]:
    """The address of the one that runs, or of one that runs for the block's time."""
    if url is not None:
        yield url
        return
    with own_server(args, model_name) as address:
        yield address


def _first_model(target: Target) -> str:
    content = _ask(target, "/v1/models")
    try:
        return str(content["data"][0]["id"])
    except (LookupError, TypeError) as error:
        raise DougongError(
            "The server names no model at /v1/models; say which one with --served-model-name."
        ) from error


def _server_version(target: Target) -> str:
    """As the server has it; not every make tells."""
    try:
        content = _ask(target, "/version")
    except DougongError:
        return "unknown"
    return str(content.get("version", "unknown")) if isinstance(content, dict) else "unknown"


def _ask(target: Target, route: str) -> Any:
    address = f"{target.url}{route}"
    try:
        with urlopen(Request(address, headers=dict(target.headers)), timeout=_ASK_TIMEOUT_S) as got:
            return json.load(got)
    except (OSError, ValueError) as error:
        raise DougongError(f"GET {address} failed: {error}.") from error


def _record(
    work: ServeWorkload, run: ServeRun, url: str | None, args: EngineArgs, version: str
) -> BenchRecord:
    return BenchRecord(
        workload=work.to_json(),
        platform=url or "a server of its own",
        dtype="" if url else args.dtype or "",
        results=results_of(run),
        memory={},
        versions={**versions(), "server": version},
        decisions={} if url else {name: getattr(args, name) for name in args.explicit},
    )


def _check_any_whole(run: ServeRun) -> None:
    errors = errors_of(run)
    if sum(errors.values()) == len(run.answers):
        raise DougongError(f"No request got a whole answer. {next(iter(errors))}")
