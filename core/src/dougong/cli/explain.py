"""``dougong explain``: what would run, who chose it, what was passed over and why; nothing runs."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dougong.cli.engine_options import with_engine_options
from dougong.cli.model_argument import model_of
from dougong.cli.new_file import check_new_file
from dougong.config.args import EngineArgs
from dougong.errors import ConfigError

if TYPE_CHECKING:
    from dougong.planner import ExecutionPlan

app = typer.Typer(add_completion=False)

_EPILOG = (
    "Examples: dougong explain demo; dougong explain ./my-model --save plan.json, and later "
    "dougong explain ./my-model --diff plan.json. Exit code 2: there is no such plan, and the "
    "message has every reason."
)


@app.command(epilog=_EPILOG)
@with_engine_options
def explain(
    context: typer.Context,
    args: EngineArgs,
    reference: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="As --model takes it. Default: demo.")
    ] = None,
    capabilities: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Plan for the device that this file of `capabilities` describes."
        ),
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Show only what differs from a saved plan, a capability file, or a platform.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the plan, for --plan; never over another file."),
    ] = None,
    is_ops: Annotated[
        bool, typer.Option("--ops", help="Show only the switch of every op and what it comes to.")
    ] = False,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, as --save writes it.")
    ] = False,
    is_verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show defaults too, and log more.")
    ] = False,
) -> None:
    """Print the plan of a start, or refuse as the start would. No weights, no device needed."""
    if diff is not None and is_ops:
        raise ConfigError("--diff and --ops show different things. Give one of them.")
    args = replace(args, model=model_of(context, args.model, reference))
    check_new_file(
        save, kept="a plan that somebody may insist on", instead=f"look at --diff {save}"
    )
    quiet_planning(is_verbose)
    plan = _plan(args, capabilities)
    if save is not None:
        _write(save, plan)
    if diff is not None:
        _show_difference(args, plan, diff, is_json=is_json)
    else:
        _show(plan, is_ops=is_ops, is_json=is_json, is_verbose=is_verbose)


def quiet_planning(is_verbose: bool) -> None:
    """Keep reports of the usual level out of the log; the tree says it all."""
    logger = logging.getLogger("dougong")
    if not is_verbose and logger.getEffectiveLevel() == logging.INFO:
        logger.setLevel(logging.WARNING)


def _plan(args: EngineArgs, capabilities: Path | None) -> ExecutionPlan:
    from dougong.engine import planning

    return planning.explain(args, capabilities)


def _show(plan: ExecutionPlan, *, is_ops: bool, is_json: bool, is_verbose: bool) -> None:
    from dougong.cli.explain_view import print_plan, print_switches
    from dougong.planner.record import plan_to_json

    if is_json:
        print(plan_to_json(plan), end="")
    elif is_ops:
        print_switches(plan)
    else:
        print_plan(plan, is_verbose=is_verbose)


def _show_difference(args: EngineArgs, plan: ExecutionPlan, other: str, *, is_json: bool) -> None:
    from dougong.cli.explain_diff import compare, print_comparison

    comparison = compare(plan, other, lambda changes, file: _plan(replace(args, **changes), file))
    if is_json:
        print(json.dumps(comparison.to_json(), indent=2, ensure_ascii=False))
    else:
        print_comparison(comparison)


def _write(file: Path, plan: ExecutionPlan) -> None:
    from dougong.planner.record import plan_to_json

    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(plan_to_json(plan))
    except OSError as error:
        raise ConfigError(f"--save {file}: {error.strerror or error}.") from error
    print(f"saved: {file}; insist on it with --plan {file}", file=sys.stderr, flush=True)
