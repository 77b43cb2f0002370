from __future__ import annotations

from typing import get_type_hints

import typer
from typer.testing import CliRunner

from dougong.cli.engine_options import _HELP, with_engine_options
from dougong.config import EngineArgs, EngineOptions


def given(*arguments: str) -> EngineArgs:
    app, seen = typer.Typer(), list[EngineArgs]()

    @app.command()
    @with_engine_options
    def command(args: EngineArgs, number: int = 1) -> None:
        seen.append(args)

    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_nothing_given_leaves_everything_open_but_the_model() -> None:
    assert given() == EngineArgs(model="demo")


def test_options_arrive_with_their_types() -> None:
    args = given(
        "--model", "m", "--max-num-seqs", "3", "--no-enable-prefix-caching", "--enforce-eager",
        "--device-memory-utilization", "0.5", "--number", "2",
    )  # fmt: skip
    assert args.max_num_seqs == 3
    assert args.enable_prefix_caching is False
    assert args.enforce_eager is True
    assert args.device_memory_utilization == 0.5


def test_an_op_may_be_chosen_again_and_again() -> None:
    args = given("--op", "linear=a/b", "--custom-ops", "none,+lm_head", "--op", "lm_head=a/c",
                 "--strict", "--plan", "plan.json")  # fmt: skip
    assert args.op == ("linear=a/b", "lm_head=a/c")
    assert (args.custom_ops, args.strict, args.plan) == ("none,+lm_head", True, "plan.json")


def test_every_option_of_the_engine_is_an_option_of_a_command() -> None:
    assert set(_HELP) == set(EngineArgs.option_names())


def test_the_seed_of_the_engine_has_a_name_of_its_own() -> None:
    args = given("--engine-seed", "7", "--scheduling-policy", "priority",
                 "--long-prefill-token-threshold", "64")  # fmt: skip
    assert (args.seed, args.scheduling_policy) == (7, "priority")
    assert args.long_prefill_token_threshold == 64


def test_keyword_options_are_the_fields_of_the_wishes() -> None:
    wishes = get_type_hints(EngineArgs)
    del wishes["model"], wishes["defaults"]
    assert get_type_hints(EngineOptions) == wishes
