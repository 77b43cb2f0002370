"""Pieces of the tree that ``dougong explain`` prints: lines that wrap, sizes, places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dougong.planner.number_ranges import number_ranges

_INDENT = 2
_LEAST_WIDTH = 16
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Hanging:
    """Text whose lines after the first are indented; no part of it is ever cut off."""

    text: Text
    indent: int = _INDENT

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Wrapped to the width there is."""
        width = max(_LEAST_WIDTH, options.max_width)
        first, *more = self.text.wrap(console, width, overflow="fold") or [Text()]
        rest = self.text[len(first) :] if more else Text()
        first.rstrip()
        yield first
        rest = rest[len(rest) - len(rest.plain.lstrip()) :]
        for part in rest.wrap(console, width - self.indent, overflow="fold") if more else ():
            part.rstrip()
            yield Text(" " * self.indent).append_text(part)


def line(*parts: str | tuple[str, str], indent: int = _INDENT) -> Hanging:
    """One entry: texts, or ``(text, style)``; brackets in them are brackets."""
    return Hanging(Text.assemble(*parts), indent)


def entry(label: str, *parts: str | tuple[str, str]) -> Hanging:
    """One entry that begins with its name."""
    return line((label, "bold"), *((" ", *parts) if parts else ()))


def size(num_bytes: float) -> str:
    """Bytes for people, to three digits or so."""
    unit = 0
    while num_bytes >= 1024 and unit < len(_UNITS) - 1:
        num_bytes, unit = num_bytes / 1024, unit + 1
    digits = 1 if unit and num_bytes < 100 else 0
    shown = f"{num_bytes:.{digits}f}"
    return f"{shown.removesuffix('.0')} {_UNITS[unit]}"


def counted(count: int, noun: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def places(paths: Sequence[str]) -> str:
    """Module paths, those that differ in a layer's number or in the last name together.

    ``layers.0-29.attention.{qkv,out}`` for sixty of them.
    """
    return ", ".join(_compact(paths))


def _compact(paths: Sequence[str], *, is_below: bool = False) -> Iterator[str]:
    numbers_of: dict[tuple[str, str], list[int]] = {}
    plain: list[str] = []
    for path in paths:
        head, number, rest = _split_at_number(path)
        if number is None:
            plain.append(path)
        else:
            numbers_of.setdefault((head, rest), []).append(number)
    rests_of: dict[tuple[str, str], list[str]] = {}
    for (head, rest), numbers in numbers_of.items():
        rests_of.setdefault((head, number_ranges(numbers)), []).append(rest)
    yield from _with_alternatives(plain, is_below=is_below)
    for (head, shown), rests in rests_of.items():
        for rest in _compact(rests, is_below=True):
            yield ".".join(part for part in (head, shown, rest) if part)


def _split_at_number(path: str) -> tuple[str, int | None, str]:
    """What stands before the first number, the number, and what follows."""
    names = path.split(".")
    at = next((index for index, name in enumerate(names) if name.isdecimal()), None)
    if at is None:
        return path, None, ""
    return ".".join(names[:at]), int(names[at]), ".".join(names[at + 1 :])


def _with_alternatives(paths: Sequence[str], *, is_below: bool) -> Iterator[str]:
    """Paths of one parent as ``parent.{one,other}``; ``is_below``: something stands before them."""
    names_of: dict[str, list[str]] = {}
    for path in paths:
        parent, _, name = path.rpartition(".")
        names_of.setdefault(parent, []).append(name)
    for parent, names in names_of.items():
        if not parent and not is_below:
            yield from names
        else:
            name = names[0] if len(names) == 1 else f"{{{','.join(names)}}}"
            yield f"{parent}.{name}" if parent else name
