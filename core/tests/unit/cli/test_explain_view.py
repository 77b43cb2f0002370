from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from dougong.cli.explain_view import plan_tree, print_plan
from dougong.contracts import GraphAssignment
from dougong.planner import ExecutionMode, ExecutionPlan, PassedOver
from tests.support.made_up_plans import chip_plan, plain_plan

_GUIDES = re.compile(r"^[\s│├└─]+")


def _lines(plan: ExecutionPlan, width: int = 80, *, is_verbose: bool = False) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(plan_tree(plan, is_verbose=is_verbose))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def _said(plan: ExecutionPlan, width: int = 80, *, is_verbose: bool = False) -> str:
    """The tree as one text, without guides and line breaks."""
    return " ".join(_GUIDES.sub("", one) for one in _lines(plan, width, is_verbose=is_verbose))


def _words_of(plan: ExecutionPlan) -> Iterator[str]:
    """Everything in a plan that somebody wrote for people, and every name."""
    yield from (plan.model, plan.architecture, plan.dtype, plan.platform, plan.device, plan.arch)
    yield from plan.platform_reasons
    for one in plan.fallbacks:
        yield from (one.reason, one.cost_hint)
    for kind in plan.attention:
        yield from (kind.assignment.backend, kind.assignment.decode_backend or "")
        yield kind.assignment.layout.name
        for other in kind.passed_over:
            yield f"{other.name} passed over: {other.reason}"
    for op in plan.ops:
        yield from (op.key, op.inside, *(piece.implementation for piece in op.assignment.pieces))
        for other in op.passed_over:
            yield from (other.name, other.reason)
        for piece in op.assignment.pieces:
            yield plan.origins.get(piece.implementation, "")
    for weight in plan.weights:
        yield from (weight.format, weight.where, weight.kernel, weight.scale_layout, weight.reason)
    yield from (plan.mode.name, plan.mode.reason, *(plan.kernels_loaded or ()))
    for library, reason in plan.kernels_missing.items():
        yield f"{library} missing: {reason}"
    for unused in plan.unmatched:
        yield f"{unused.name}: {unused.reason}"
    for decision in plan.decisions:
        if not decision.is_default:
            yield f"{decision.field} = {decision.value} by {decision.author}: {decision.reason}"


@pytest.mark.parametrize("plan", [plain_plan(), chip_plan()], ids=["plain", "chip"])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_nothing_that_a_plan_says_is_left_out(plan: ExecutionPlan, width: int) -> None:
    said = _said(plan, width)
    assert [words for words in _words_of(plan) if words not in said] == []


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert [one for one in _lines(chip_plan(), width) if len(one) > width] == []


def test_what_matters_most_comes_first() -> None:
    lines = _lines(chip_plan())
    assert lines[0].startswith("acme-labs/converted-7b-instruct on platform acme")
    heads = [one[4:].split(":")[0] for one in lines if one.startswith(("├── ", "└── "))]
    assert heads == [
        "platform", "fallbacks", "attention", "KV cache", "ops", "weights", "execution",
        "adapters", "kernel libraries", "configuration", "registered, never used by this model",
    ]  # fmt: skip


def test_captured_steps_are_told_with_sizes_and_memory() -> None:
    graphs = GraphAssignment(decode=(1, 4), piecewise=(8, 16), max_bytes=3 << 20)
    said = _said(replace(plain_plan(), mode=ExecutionMode("decode", "as claimed", graphs)))
    assert "captured: decode: as claimed" in said
    assert "decode graphs: 1, 4 sequences with one token each, whole" in said
    assert "piecewise graphs: 8, 16 tokens, all but attention" in said
    assert "memory of graphs: at most 3 MiB; what does not fit is left out" in said
    asked = replace(graphs, decode=(), may_drop=False)
    said = _said(replace(plain_plan(), mode=ExecutionMode("piecewise", "asked for", asked)))
    assert "decode graphs" not in said
    assert "what does not fit stops the start" in said


def test_an_unknown_family_and_a_wheel_that_is_not_here_are_said() -> None:
    said = _said(chip_plan())
    assert "acme (its wheel is not installed here)" in said
    assert "acme-9, a family that the platform does not know" in said
    assert "does not know" not in _said(plain_plan())


def test_defaults_are_counted_and_shown_on_request() -> None:
    assert "configuration: 1 default not shown" in _said(plain_plan())
    assert "seed = 0" not in _said(plain_plan())
    said = _said(plain_plan(), is_verbose=True)
    assert "configuration: every option" in said
    assert "seed = 0 by core: default" in said


def test_what_the_user_said_comes_before_what_a_platform_and_a_checkpoint_did() -> None:
    said = _said(chip_plan())
    assert said.index("max_num_seqs = 8") < said.index("block_size = 16")
    assert said.index("block_size = 16") < said.index("max_model_len = 8192")


def test_libraries_that_nobody_tried_are_not_called_missing() -> None:
    said = _said(replace(plain_plan(), kernels_loaded=None))
    assert "kernel libraries: not tried yet" in said
    assert "kernel libraries: the platform has none" in _said(
        replace(plain_plan(), kernels_loaded=())
    )


def test_weights_say_what_becomes_of_them() -> None:
    said = _said(chip_plan())
    assert "q4_1 (86.8 MiB): dequantized at load to bfloat16" in said
    assert "why: see fallbacks" in said, "a reason is not told twice"
    assert "fp8 (no file here): as stored" in said


def test_registrations_that_never_match_for_one_reason_stand_together() -> None:
    unmatched = tuple(PassedOver(name, "no such op") for name in ("a/x", "a/y"))
    said = _said(replace(plain_plan(), unmatched=unmatched))
    assert "registered, never used by this model: 2 a/x, a/y: no such op" in said
    assert "registered, never used by this model: none" in _said(plain_plan())


def test_into_a_pipe_go_80_columns_without_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    print_plan(chip_plan())
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[-1].startswith("more: --ops")


def test_a_terminal_gets_colour_and_loses_no_word() -> None:
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print(plan_tree(chip_plan()))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "\x1b[32m" in text, "what a wheel brought is green"
    assert "\x1b[33m" in text, "what fell back is yellow"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert [one.rstrip() for one in plain.splitlines()] == _lines(chip_plan())
