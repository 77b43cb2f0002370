"""Scenario A06: op switches do what they say, eager or not, and what is printed is what runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from dougong import LLM
from dougong.ops import OPS
from tests.support.command_line import run_command
from tests.support.counted_ops import (
    KERNEL,
    NORM,
    OVERRIDE,
    ROTARY,
    implementations_that_ran,
    install_counted_ops,
)
from tests.support.greedy import greedy_tokens
from tests.support.stub_plugins import count_calls
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

# Switches → what runs for the two ops of the wheel: a named op follows its own sign.
OBEYED: Mapping[str, tuple[str, str]] = {
    "all": (OVERRIDE, KERNEL),
    "none": ("native", "native"),
    f"none,+{NORM}": (OVERRIDE, "native"),
    f"none,+{ROTARY}": ("native", KERNEL),
    f"all,-{NORM}": ("native", KERNEL),
    f"all,-{ROTARY}": (OVERRIDE, "native"),
    f"+{NORM}": (OVERRIDE, KERNEL),
    f"-{NORM}": ("native", KERNEL),
}
SWITCH_WORDS = {"all": "on", "none": "off (none)"}
KNOWN = ", ".join(sorted(OPS))
UNKNOWN = f"names rms_norn, which no installed package has as an op; known: {KNOWN}."
REFUSED: Mapping[str, str] = {
    "all,none": "--custom-ops has both all and none; give one.",
    f"+{NORM},-{NORM}": f"--custom-ops has both +{NORM} and -{NORM}; give one.",
    "+rms_norn": UNKNOWN,
    "all,-rms_norn": UNKNOWN,
    "rms_norm": "--custom-ops has 'rms_norm', which is neither all, none, +op nor -op; write "
    "+rms_norm or -rms_norm.",
}
EAGER = pytest.mark.parametrize("eager", [True, False], ids=["eager", "not eager"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install_counted_ops(tmp_path, monkeypatch)


def eager_option(eager: bool) -> str:
    return "--enforce-eager" if eager else "--no-enforce-eager"


def table(text: str) -> dict[str, tuple[str, str]]:
    """Op → switch and what runs, as ``explain --ops`` prints them below the options."""
    lines = [re.split(r"\s{2,}", line) for line in text.splitlines()]
    rows = lines[lines.index(["op", "switch", "runs"]) + 1 :]
    return {row[0]: (row[1], row[2]) for row in rows}


def switch_word(switches: str, key: str) -> str:
    for sign, word in (("+", "required (+)"), ("-", "off (-)")):
        if f"{sign}{key}" in switches.split(","):
            return word
    return SWITCH_WORDS.get(switches.partition(",")[0], "on")


@EAGER
@pytest.mark.parametrize("switches", OBEYED)
def test_a_named_op_follows_its_own_sign_and_the_printed_table_is_what_is_counted(
    counter: Path,
    model: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    switches: str,
    eager: bool,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = (f"--custom-ops={switches}", eager_option(eager))
    assert run_command("explain", model, "--ops", *options) == 0
    printed = table(capsys.readouterr().out)
    assert count_calls(counter).keys() <= {"descriptor imported", "probe", "hooks imported"}
    with LLM(model, custom_ops=switches, enforce_eager=eager, num_kv_blocks=20) as llm:
        greedy_tokens(llm)
        report = llm.report
    ran = implementations_that_ran(counter)
    assert ran.keys() == set(zip((NORM, ROTARY), OBEYED[switches], strict=True))
    for key, name in ran:
        assert printed[key][0] == switch_word(switches, key)
        (count,) = report.implementations[key].values()
        asked = ", as the user asked" if key in switches else ""
        assert printed[key][1].startswith(f"{count} x {name}{asked}")
        assert list(report.implementations[key]) == [name]
    assert printed.keys() == {one.key for one in report.plan.ops}
    assert report.plan.mode.name == "none"


@EAGER
@pytest.mark.parametrize("command", ["generate", "explain"])
@pytest.mark.parametrize("switches", REFUSED)
def test_a_contradiction_or_an_unknown_name_is_refused_before_any_weight_is_read(
    counter: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    switches: str,
    command: str,
    eager: bool,
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny_config()))  # and nothing else
    prompt = ["the"] if command == "generate" else []
    arguments = (*prompt, f"--model={folder}", f"--custom-ops={switches}", eager_option(eager))
    assert run_command(command, *arguments) == 2
    captured = capsys.readouterr()
    assert REFUSED[switches] in captured.err
    assert captured.out == ""
    assert not implementations_that_ran(counter)


@pytest.mark.parametrize("op", [f"{NORM}=acme/none", "rms_norn=native", NORM])
def test_an_implementation_that_nobody_has_is_refused_with_those_there_are(
    counter: Path, model: str, capsys: pytest.CaptureFixture[str], op: str
) -> None:
    assert run_command("generate", "the", "--model", model, "--op", op) == 2
    told = capsys.readouterr().err
    if op == NORM:
        assert f"--op '{NORM}' is malformed" in told
    else:
        names = f"{OVERRIDE}, cpu/{NORM}, native" if NORM in op else KNOWN
        assert names in told
    assert not implementations_that_ran(counter)


@pytest.mark.parametrize(
    "wish",
    [
        ("--custom-ops", "+lm_head"),
        ("--custom-ops", "none,+lm_head"),
        ("--op", "lm_head=cpu/packed_lm_head"),
    ],
    ids=" ".join,
)
def test_a_wish_that_cannot_be_had_is_refused_with_the_candidates_reason(
    counter: Path, model: str, capsys: pytest.CaptureFixture[str], wish: tuple[str, str]
) -> None:
    """``+op`` and ``--op`` are wishes like any other: native never takes their place in silence."""
    asked = f"{wish[0]} {wish[1].removeprefix('none,')}"
    arguments = ("the", "--model", model, "--dtype", "float16", *wish)
    assert run_command("generate", *arguments) == 2
    told = capsys.readouterr().err
    assert f"{asked} cannot be obeyed at 1 of 1 places (the first is lm_head)" in told
    assert "cpu/packed_lm_head: dtype float16; takes" in told
    assert not implementations_that_ran(counter)
