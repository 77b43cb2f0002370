"""What a shared library asks of others and gives to them, read with ``readelf``."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+)\]")
_VERSION_FILE = re.compile(r"Version: 1\s+File: (\S+)")
_VERSION_INDEX = re.compile(r"Name: (\S+)\s+Flags: .*Version: (\d+)")
_OF_THE_INTERPRETER = re.compile(r"_?Py")


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """A symbol that a library needs from another one.

    Attributes:
        name: As the linker sees it.
        version: Of the symbol; empty: it has none.
        library: Soname of the library that the version belongs to; empty: any may define it.
    """

    name: str
    version: str = ""
    library: str = ""


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library: names of those it needs, of the symbols it needs, of those it defines."""

    needed: tuple[str, ...]
    undefined: frozenset[Symbol]
    defined: frozenset[str]


def read_library(path: Path) -> Library:
    """Read a shared library's dynamic section.

    Symbols of the Python interpreter are left out of `Library.undefined`, and so are weak ones: a
    library loads without them.

    Raises:
        subprocess.CalledProcessError: It is no ELF file.
    """
    command = ["readelf", "-W", "-d", "-V", "--dyn-syms", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    owners = _version_owners(text)
    undefined, defined = set(), set()
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit() or fields[4] not in _BINDINGS:
            continue
        name, _, version = fields[7].partition("@")
        if fields[6] != "UND":
            defined.add(name)
        elif fields[4] == "GLOBAL" and not _OF_THE_INTERPRETER.match(name):
            index = fields[8].strip("()") if len(fields) > 8 else ""
            undefined.add(Symbol(name, version, owners.get(index, "")))
    return Library(tuple(_NEEDED.findall(text)), frozenset(undefined), frozenset(defined))


_BINDINGS = frozenset({"GLOBAL", "WEAK", "UNIQUE"})


def _version_owners(text: str) -> dict[str, str]:
    """Index of a version, as the symbol table writes it → soname of the library it is of."""
    owners: dict[str, str] = {}
    library = ""
    for line in text.splitlines():
        if found := _VERSION_FILE.search(line):
            library = found[1]
        elif library and (found := _VERSION_INDEX.search(line)):
            owners[found[2]] = library
    return owners
