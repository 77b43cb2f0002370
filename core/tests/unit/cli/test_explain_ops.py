from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from dougong.cli.explain_ops import ops_tree, origins_text, ways_of
from dougong.config.decision import USER
from dougong.contracts import OpPiece
from dougong.planner import OpPlan, PassedOver
from tests.support.made_up_plans import chip_plan, layer_paths, op_plan, plain_plan


def _tree(*ops: OpPlan) -> list[str]:
    console = Console(file=StringIO(), width=120, highlight=False)
    console.print(ops_tree(replace(chip_plan(), ops=ops)))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_an_op_that_runs_alike_everywhere_is_one_line() -> None:
    big = op_plan("linear", layer_paths("qkv"), "acme/big_mm", in_features=64)
    other = op_plan("linear", ("lm_head",), "acme/big_mm", in_features=128)
    assert _tree(big, other) == [
        "ops: 5 of 5 run a registered implementation, 0 native (plain torch)",
        "└── linear  5  acme/big_mm (dougong-acme 1.2.0)",
    ]


def test_exceptions_stand_below_the_most_frequent_way_with_their_places() -> None:
    usual = op_plan("linear", layer_paths("qkv", "out"), "acme/big_mm")
    other = op_plan("linear", layer_paths("down", num_layers=2))
    assert _tree(other, usual)[1:] == [
        "└── linear  10  in 2 ways",
        "    ├── 8 x acme/big_mm (dougong-acme 1.2.0): layers.0-3.{qkv,out}",
        "    └── 2 x native: layers.0-1.down",
    ]


def test_a_choice_of_the_user_is_an_exception_too() -> None:
    alike = [op_plan("linear", (name,), author=author) for name, author in (("a", USER), ("b", ""))]
    assert [way.author for way in ways_of(alike)] == [USER, ""]
    assert "as the user asked: a" in _tree(*alike)[2]


def test_what_a_fused_slot_does_is_not_counted_as_running() -> None:
    lines = _tree(
        op_plan("fused", ("slot",), "acme/AddNorm"), op_plan("rms_norm", ("n",), inside="fused")
    )
    assert lines[0] == "ops: 1 of 1 run a registered implementation, 0 native (plain torch)"
    assert lines[2] == "└── rms_norm  1  done inside fused"


def test_a_wheel_that_brought_two_pieces_is_named_once() -> None:
    pieces = (OpPiece("acme/small_mm", 8), OpPiece("acme/big_mm"))
    assert origins_text(chip_plan(), pieces) == " (dougong-acme 1.2.0)"
    assert origins_text(plain_plan(), pieces) == ""


def test_a_reason_of_one_op_stands_at_that_op_and_names_places_unless_it_holds_everywhere() -> None:
    reason = "in_features 5632; takes at most 4096"
    both = (PassedOver("a/x", reason), PassedOver("a/y", reason))
    wide = op_plan("linear", layer_paths("down"), passed_over=both)
    usual = op_plan("linear", layer_paths("qkv"), "acme/big_mm")
    assert f"a/x, a/y passed over at layers.0-3.down: {reason}" in _tree(usual, wide)[-1]
    assert f"a/x, a/y passed over: {reason}" in _tree(wide)[-1]


def test_a_reason_that_several_ops_share_is_told_once() -> None:
    reason = "needs acme-kernels: not found"
    ops = [op_plan(key, (key,), passed_over=(PassedOver(f"a/{key}", reason),)) for key in "xyz"]
    lines = _tree(*ops)
    assert sum(reason in line for line in lines) == 1
    assert [line.split(" ", 1)[1].split() for line in lines[-3:]] == [
        ["├──", f"a/{key}", "for", key] if key != "z" else ["└──", "a/z", "for", "z"]
        for key in "xyz"
    ]
