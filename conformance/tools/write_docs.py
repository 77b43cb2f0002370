"""Writes the parts of docs/conformance.md that come from code.

Run it after a requirement or a command has changed::

    python conformance/tools/write_docs.py

writes commands and requirements, and a test holds the page against them. With ``--outputs`` it also
runs the commands of the page and writes what they print; that needs dougong-sim and some minutes.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperCommand

from dougong_conformance.cli.main import COMMANDS
from dougong_conformance.requirements import PROFILES, Requirement, all_requirements

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
_OUTPUT = re.compile(r"```console run\n\$ (.+?)\n(?:.*?\n)??```", re.DOTALL)
_MOST_LINES = 24


def with_generated_parts(page: str) -> str:
    """The page with the blocks between ``<!-- generated: NAME -->`` and ``<!-- end -->`` anew."""
    makers = {"commands": commands, "requirements": requirements}

    def block(found: re.Match[str]) -> str:
        lines = "".join(f"{line}\n" for line in makers[found[2]]())
        return f"{found[1]}{lines}{found[3]}"

    return _BLOCK.sub(block, page)


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    yield "| command | what it does | arguments and options |"
    yield "|---|---|---|"
    for name, (module, summary) in COMMANDS.items():
        yield f"| `{name}` | {summary} | {_options(module)} |"


def requirements() -> Iterator[str]:
    """Every requirement, by profile."""
    known = all_requirements()
    counted = [one for one in known.values() if not one.is_provisional]
    core = sum(one.is_core for one in counted)
    yield (
        f"{len(counted)} requirements are judged: {core} of Core, {len(counted) - core} Extended. "
        f"{len(known) - len(counted)} more are provisional."
    )
    for profile in PROFILES:
        rows = [one for one in known.values() if one.profile == profile]
        yield ""
        yield f"### {profile}"
        yield ""
        if not rows:
            yield "No requirement yet."
            continue
        yield "| id | what it says | counts as | rejects |"
        yield "|---|---|---|---|"
        for one in rows:
            text = " ".join(one.text.split()).replace("|", "\\|")
            yield f"| `{one.id}` | {text} | {_counts_as(one)} | {', '.join(one.kills)} |"


def _counts_as(one: Requirement) -> str:
    if one.is_provisional:
        return "provisional"
    if one.is_core:
        return "Core"
    claim = f" where `{one.capability}` is claimed" if one.capability else ""
    return f"Extended ({one.level.value}){claim}"


def _options(module: str) -> str:
    made = typer.Typer(add_completion=False)
    try:
        importlib.import_module(f"dougong_conformance.cli.{module}").register(made)
    except ModuleNotFoundError:
        return ""
    command = typer.main.get_command(made)
    if not isinstance(command, TyperCommand):  # a group: its own help lists what is in it
        return " ".join(f"`{name}`" for name in sorted(getattr(command, "commands", {})))
    words = []
    for one in command.params:
        if one.name == "help":
            continue
        is_argument = one.param_type_name == "argument"
        name = one.metavar or str(one.name).upper() if is_argument else one.opts[-1]
        words.append(f"`{name}`")
    return " ".join(words)


def with_outputs(page: str) -> str:
    """The page with the command of every block ```` ```console run ```` run anew, in order."""
    with tempfile.TemporaryDirectory() as folder:
        return _OUTPUT.sub(lambda found: _run(found[1], Path(folder)), page)


def _run(command: str, folder: Path) -> str:
    if not command.startswith("dougong") or shutil.which(command.split()[0]) is None:
        raise SystemExit(f"cannot run: {command}")
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 6], "...", *lines[-5:]]
    return "\n".join(["```console run", f"$ {command}", *lines, "```"])


def main() -> None:
    """Write the page."""
    page = PAGE.read_text("utf-8")
    if "--outputs" in sys.argv[1:]:
        page = with_outputs(page)
    PAGE.write_text(with_generated_parts(page), "utf-8")


if __name__ == "__main__":
    main()
