"""Which operators of torch the core asks of a device: counted on the simulated one.

    python -m tools.op_surface            writes docs/op_surface.md and the device's ops.txt
    python -m tools.op_surface --check    says whether they are what a run gives now

A test does the second: an operator that a change of the core needs for the first time is a visible
change for every vendor.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from dougong_sim.device import control, load
from dougong_sim.device.loading import declared_ops
from tools.surface_runs import RUNS, Part, Run

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT.parents[1] / "docs" / "op_surface.md"
OPS_FILE = ROOT / "src" / "dougong_sim" / "device" / "ops.txt"

_OF_THE_SURFACE = "# What docs/op_surface.md lists; written by tools/op_surface.py."
_BESIDE = "# What tests of the device and of other plugins need beside it; kept by hand."
_COUNTER = "op:"
_BUILT_IN = {"aten::copy_"}  # by way of _copy_from
_INTRODUCTION = """\
# The operators a device needs

Made by `python -m tools.op_surface` in `plugins/reference-sim`, from the counters of the simulated
device; a test holds this page against a run. So what is here is what the core asks of a device, no
more and no less, with torch {torch}: names of the dispatcher, without overloads, as a backend
registers them. *Start*: only while a model is loaded and warmed up. Collectives are not counted.
"""


@dataclass(slots=True)
class Surface:
    """What was counted.

    Attributes:
        first: Operator → title of the first run that called it.
        in_steps: Operators that a step calls, beside those of a start.
    """

    first: dict[str, str] = field(default_factory=dict)
    in_steps: set[str] = field(default_factory=set)

    def take(self, title: str, *, is_step: bool) -> None:
        """Add what the device counted since the last time."""
        names = [
            name.removeprefix(_COUNTER) for name in control.counters() if name.startswith(_COUNTER)
        ]
        for name in sorted(names):
            self.first.setdefault(name, title)
        if is_step:
            self.in_steps.update(names)
        control.clear_counters()


@contextmanager
def _everything_declared() -> Iterator[None]:
    """Inside, the device implements whatever the CPU does."""
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    control.declare_ops(sorted(names))
    try:
        yield
    finally:
        control.declare_ops(declared_ops())


def count(runs: tuple[Run, ...] = RUNS) -> Surface:
    """Run all of them on the device.

    Args:
        runs: In the order in which operators are put down to them.
    """
    load()
    surface = Surface()
    control.set_mode("lazy")
    with _everything_declared(), tempfile.TemporaryDirectory() as folder:
        for number, run in enumerate(runs):
            control.clear_counters()
            _count(run, Path(folder, str(number)), surface)
    return surface


def _count(run: Run, folder: Path, surface: Surface) -> None:
    steps = run.start(folder)
    surface.take(run.title, is_step=False)
    steps()
    surface.take(run.title, is_step=True)


def document(surface: Surface) -> str:
    """The page."""
    lines = [_INTRODUCTION.format(torch=torch.__version__.partition("+")[0])]
    for part in Part:
        titles = [run.title for run in RUNS if run.part is part]
        names = sorted(name for name, title in surface.first.items() if title in titles)
        lines += [f"## {part.value}", "", *(f"{i}. {title}" for i, title in enumerate(titles, 1))]
        more = "" if part is Part.CORE else " that nothing above needed"
        lines += ["", f"{len(names)} operators{more}:", ""]
        lines += ["| operator | first needed by | when |", "|---|---|---|"]
        for name in names:
            when = "step" if name in surface.in_steps else "start"
            lines.append(f"| `{name}` | {titles.index(surface.first[name]) + 1} | {when} |")
        lines.append("")
    return "\n".join(lines)


def declared(surface: Surface) -> str:
    """What ``ops.txt`` says first: every operator, but for those a backend must have to exist."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    built_in = {name.partition(".")[0] for name in registered} | _BUILT_IN
    names = sorted(set(surface.first) - built_in)
    return "".join(f"{line}\n" for line in (_OF_THE_SURFACE, *names))


def beside() -> str:
    """What ``ops.txt`` says after that, kept by hand: the rest of the file as it is."""
    _, mark, rest = OPS_FILE.read_text("utf-8").partition(_BESIDE)
    return mark + rest


def differences(surface: Surface) -> list[str]:
    """What is written otherwise than it is now, one line each; none: all is well."""
    found = []
    for path, text in ((DOCUMENT, document(surface)), (OPS_FILE, declared(surface) + beside())):
        before = path.read_text("utf-8").splitlines() if path.exists() else []
        now = text.splitlines()
        found += [f"{path.name}: new: {line}" for line in now if line not in before]
        found += [f"{path.name}: gone: {line}" for line in before if line not in now]
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command; 1: something differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    is_check = parser.parse_args(arguments).check
    surface = count()
    if is_check:
        found = differences(surface)
        sys.stdout.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    DOCUMENT.write_text(document(surface), "utf-8")
    OPS_FILE.write_text(declared(surface) + beside(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
