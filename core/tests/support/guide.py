"""Code blocks of a page in ``docs/``, so that tests can hold them against what they speak of.

What stands behind the language of a block says what it is: ``title="FILE"``, an excerpt of that
file; ``add="CLASS"``, methods for that class; ``reason="KERNEL"``, why that one is passed over;
nothing, a piece of a module. In ``console`` blocks a line with ``$`` is a command, and what follows
it is printed, where ``...`` is anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(r"^```(\w+)(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
_MARK = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Block:
    """One code block.

    Attributes:
        language: ``"python"``, ``"console"``, ``"toml"``, ``"text"``.
        text: What stands in it.
        marks: What stands behind the language, by name.
    """

    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block, without the ``$``, and what it is shown to print."""

    text: str
    output: str


def blocks(page: str) -> list[Block]:
    """Every code block of a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = [
        Block(language, body, dict(_MARK.findall(marks)))
        for language, marks, body in _BLOCK.findall(text)
    ]
    assert len(found) * 2 == sum(line.startswith("```") for line in text.splitlines())
    return found


def commands(page: Sequence[Block]) -> list[Command]:
    """Commands of all console blocks, in order."""
    found: list[Command] = []
    for block in page:
        if block.language == "console":
            first, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
            assert not first, "a console block begins with a command"
            split = (part.partition("\n") for part in parts)
            found += [Command(command, output) for command, _, output in split]
    return found
