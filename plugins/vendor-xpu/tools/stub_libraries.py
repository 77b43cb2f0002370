"""Libraries that another one needs in order to load, without what is behind them.

PyTorch 2.8 for x86 Linux is published for NVIDIA's GPUs only: its libraries do not load without
those of CUDA, 4 GB that a machine without such a GPU has no use for. A stub has the soname, the
version nodes and the symbols that are asked for; each of its functions says "no device".
"""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.elf import Library, Symbol, read_library

# cudaErrorNoDevice; as the status of any of the other libraries it is an error as well.
NO_DEVICE = 100
_TEXTS = ("ErrorString", "ErrorName")


def write_stubs(libraries: Sequence[Path], folder: Path) -> dict[str, int]:
    """Build a stub of each library that `libraries` need and that is nowhere.

    Args:
        libraries: Those that are to load. What lies beside them counts as found.
        folder: Gets the stubs; it must be on the search path of `libraries`.

    Returns:
        Soname of each stub → number of its symbols. Symbols without a version, which any library
        may define, are in the stub that most of `libraries` need.
    """
    read = {path: read_library(path) for path in libraries}
    wanted = missing_symbols(read.values(), frozenset(path.name for path in libraries))
    for soname, symbols in wanted.items():
        _build(soname, symbols, folder)
    return {soname: len(symbols) for soname, symbols in wanted.items()}


def missing_symbols(
    libraries: Iterable[Library], present: frozenset[str] = frozenset()
) -> dict[str, tuple[Symbol, ...]]:
    """Soname of each library that is nowhere → what is asked of it.

    Args:
        libraries: Those that are to load.
        present: File names of libraries that are there though the system does not know them.
    """
    read = tuple(libraries)
    system = system_libraries()
    needed = Counter(name for one in read for name in one.needed)
    missing = sorted(name for name in needed if name not in present and name not in system)
    found = (read_library(system[name]) for name in needed if name in system)
    defined = {name for one in (*read, *found) for name in one.defined}
    wanted: dict[str, set[Symbol]] = defaultdict(set, {soname: set() for soname in missing})
    most_needed = max(missing, key=lambda soname: needed[soname], default="")
    for symbol in {symbol for one in read for symbol in one.undefined}:
        if symbol.library in missing:
            wanted[symbol.library].add(symbol)
        elif most_needed and not symbol.version and symbol.name not in defined:
            wanted[most_needed].add(symbol)
    return {soname: tuple(sorted(symbols)) for soname, symbols in wanted.items()}


def system_libraries() -> dict[str, Path]:
    """Soname → path of what the dynamic linker finds by itself."""
    command = ["/sbin/ldconfig", "-p"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = (line.split() for line in text.splitlines() if "x86-64" in line and "=>" in line)
    return {fields[0]: Path(fields[-1]) for fields in lines}


def _build(soname: str, symbols: Sequence[Symbol], folder: Path) -> None:
    source = folder / f"{soname}.c"
    script = folder / f"{soname}.map"
    source.write_text("".join(map(_function, sorted({one.name for one in symbols}))), "utf-8")
    script.write_text(_version_script(symbols), "utf-8")
    link = [f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}"]
    # -w: some stubs have the name of a function that the compiler knows.
    command = ["gcc", "-w", "-shared", "-fPIC", "-nostdlib", *link, "-o", str(folder / soname)]
    subprocess.run([*command, str(source)], check=True)
    source.unlink()
    script.unlink()


def _function(name: str) -> str:
    if name.endswith(_TEXTS):
        return f'const char *{name}(void) {{ return "there is no such device here"; }}\n'
    return f"long {name}(void) {{ return {NO_DEVICE}; }}\n"


def _version_script(symbols: Sequence[Symbol]) -> str:
    """One node for each version, with its symbols; those without a version are in none."""
    nodes = defaultdict(list)
    for one in symbols:
        if one.version:
            nodes[one.version].append(one.name)
    text = "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};\n"
        for version, names in sorted(nodes.items())
    )
    return text or "{ global: *; };\n"
