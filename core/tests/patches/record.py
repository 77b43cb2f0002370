"""Reads ``docs/patches.md``, and finds what in it does not hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "patches.md"
NUM_ITEMS = 72
"""Documented items of the record; every one stands in one row."""

COLUMNS = ("replaced", "why", "items", "here", "shown by")
_TEST = re.compile(r"`([\w./-]+\.py)::(\w+)`")
_LINK = re.compile(r"(?:not yet|no hook): \[[^\]]+\]\(([^)#]+)#([\w-]+)\)")
# What a test file of the core does that installs a wheel from outside; a plugin's own tests do it
# by being there.
_FROM_OUTSIDE = ("outside: Outside", "Installed(", "build_wheel(")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table.

    Attributes:
        replaced: First cell.
        items: As written.
        shown_by: Last cell.
    """

    replaced: str
    items: str
    shown_by: str


def rows_of(text: str) -> list[Row]:
    """Every row of every table."""
    found = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if tuple(cells) != COLUMNS and set(line) - set("|-"):
                found.append(Row(cells[0], cells[2], cells[-1]) if len(cells) == 5 else
                             Row(line, "", ""))  # fmt: skip
    return found


def problems_of(text: str, root: Path = ROOT) -> Iterator[str]:
    """Sentences on what does not hold: rows without evidence, tests and records that are not there,
    a wrong total."""
    rows = rows_of(text)
    total = 0
    for row in rows:
        if not row.items.isdecimal():
            yield f"{row.replaced!r} has no number of items: five cells a row"
            continue
        total += int(row.items)
        yield from (f"{row.replaced!r}: {problem}" for problem in _evidence_problems(row, root))
    if total != NUM_ITEMS:
        yield f"the rows stand for {total} items; the record has {NUM_ITEMS}"


def _evidence_problems(row: Row, root: Path) -> Iterator[str]:
    tests, links = _TEST.findall(row.shown_by), _LINK.findall(row.shown_by)
    rest = _LINK.sub("", _TEST.sub("", row.shown_by)).strip()
    if rest or bool(tests) == bool(links):
        yield "shown by tests, or by a decision record, and by nothing else"
    for path, name in tests:
        yield from _test_problems(root / path, path, name)
    for path, anchor in links:
        file = root / "docs" / path
        if not file.is_file():
            yield f"there is no docs/{path}"
        elif anchor not in _anchors(file):
            yield f"docs/{path} has no section {anchor}"


def _test_problems(file: Path, path: str, name: str) -> Iterator[str]:
    if not file.is_file():
        yield f"there is no file {path}"
        return
    text = file.read_text("utf-8")
    functions = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    if name not in functions or not name.startswith("test_"):
        yield f"{path} has no test {name}"
    if not path.startswith("plugins/") and not any(sign in text for sign in _FROM_OUTSIDE):
        yield f"{path} installs no wheel from outside"


@cache
def _anchors(file: Path) -> frozenset[str]:
    """Of the headings, as a page's links spell them."""
    titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles)
