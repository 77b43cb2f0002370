from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dougong.cli.explain_text import counted, entry, line, places, size


def _printed(text: str, width: int) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(line(text))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@given(
    st.lists(st.text("abcdefghij/_-[].", min_size=1, max_size=60), min_size=1, max_size=30),
    st.integers(20, 90),
)
def test_a_line_is_wrapped_and_loses_no_letter(words: list[str], width: int) -> None:
    shown = _printed(" ".join(words), width)
    assert "".join("".join(shown).split()) == "".join(words)
    assert all(len(one) <= width for one in shown)
    assert all(one == one.rstrip() for one in shown)


def test_the_lines_after_the_first_are_indented() -> None:
    assert _printed("one two three four five six", 20) == ["one two three four", "  five six"]


def test_what_looks_like_markup_is_printed_as_it_stands() -> None:
    assert _printed("needs [bold]acme[/] and \\[red]", 60) == ["needs [bold]acme[/] and \\[red]"]


def test_an_entry_is_its_name_and_what_follows() -> None:
    assert entry("why:", "because").text.plain == "why: because"
    assert entry("kernel libraries:").text.plain == "kernel libraries:"


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (737280, "720 KiB"),
        (1_310_720, "1.2 MiB"), (3 * 2**30, "3 GiB"), (5000 * 2**40, "5000 TiB"),
    ],
)  # fmt: skip
def test_sizes_are_short(num_bytes: int, shown: str) -> None:
    assert size(num_bytes) == shown


def test_one_thing_is_not_several() -> None:
    assert counted(1, "layer") == "1 layer"
    assert counted(20_000, "block") == "20,000 blocks"


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (["lm_head"], "lm_head"),
        (["embed_tokens", "lm_head"], "embed_tokens, lm_head"),
        ([f"layers.{i}.mlp.down" for i in range(30)], "layers.0-29.mlp.down"),
        (
            [f"layers.{i}.attention.{name}" for i in range(4) for name in ("qkv", "out")],
            "layers.0-3.attention.{qkv,out}",
        ),
        (
            ["layers.0.norm", "layers.1.norm", "layers.3.norm", "layers.3.mlp.down", "norm"],
            "norm, layers.0-1,3.norm, layers.3.mlp.down",
        ),
        (
            [f"layers.{i}.experts.{j}.up" for i in range(2, 4) for j in range(8)],
            "layers.2-3.experts.0-7.up",
        ),
        (["layers.0", "layers.1"], "layers.0-1"),
    ],
)
def test_places_are_told_by_ranges_of_layers(paths: list[str], shown: str) -> None:
    assert places(paths) == shown
