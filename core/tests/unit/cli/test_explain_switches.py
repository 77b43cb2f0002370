from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.cli.explain_switches import switch_of, switches_of
from dougong.cli.explain_view import print_switches
from tests.support.made_up_plans import chip_plan, plain_plan


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({}, "on"),
        ({"custom_ops": "all"}, "on"),
        ({"custom_ops": "none"}, "off (none)"),
        ({"custom_ops": "none,+linear"}, "required (+)"),
        ({"custom_ops": "none, -linear"}, "off (-)"),
        ({"custom_ops": "none", "op": "lm_head=native,linear=acme/mm"}, "asked for (--op)"),
        ({"custom_ops": "none", "op": "lm_head=native, linear = acme/mm"}, "asked for (--op)"),
        ({"op": "lm_head=native"}, "on"),
    ],
)
def test_the_switch_that_holds_is_the_most_explicit(choices: dict[str, str], said: str) -> None:
    assert switch_of(switches_of(replace(plain_plan(), choices=choices)), "linear") == said


def test_the_table_of_switches_has_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    print_switches(chip_plan())
    text = capsys.readouterr().out
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines()}
    assert rows["switches:"] == "--custom-ops all,-lm_head --op rotary_embedding=native"
    assert rows["rotary_embedding"].startswith("asked for (--op) 1 x native")
    assert rows["lm_head"].startswith("off (-) 1 x native")
    assert rows["fused_add_rms_norm"].startswith("on 8 x acme/AddNorm")
    assert rows["rms_norm"] == "on 4 x done inside fused_add_rms_norm"
    print_switches(plain_plan())
    assert "none given; every op is on" in capsys.readouterr().out
