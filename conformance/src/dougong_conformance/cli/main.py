"""The ``dougong-conform`` command: its subcommands, each imported when it runs.

A subcommand is a line in `COMMANDS` and a module with ``register(app)``, which adds it to a
`typer.Typer`. At its top such a module imports what its ``--help`` needs, and never torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dougong_conformance import SPEC_VERSION, __version__
from dougong_conformance.cli.usage import PROGRAM

_PACKAGE = "dougong_conformance.cli"

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("init", "Write the CI file of a plugin's repository, and what to do next."),
    "doctor": ("doctor", "Say whether a plugin loads, and which checks would run, and why not."),
    "smoke": ("smoke", "Run a few checks of each step of a port: under a minute."),
    "run": ("run", "Run checks, all or some, while a plugin is written."),
    "certify": ("certify", "Run everything under the rules of a certificate."),
    "report": ("report", "Write the report of a run again, in some forms."),
    "compare": ("compare", "Say what got worse between two runs."),
    "explain": ("explain", "Say what a requirement asks for, why, and what it rejects."),
    "repro": ("repro", "Run one case of a run again, alone and in one process."),
    "waivers": ("waivers", "Work on a file of waivers."),
    "selftest": ("selftest", "Prove the suite itself: mutants killed, witnesses accepted."),
    "verify": ("verify", "Check a certificate against a wheel."),
}

_EPILOG = (
    "Exit codes: 0 every required check has passed; 1 failures; 2 usage; 3 incomplete; 4 a fault "
    "of the suite; 5 nothing ran; 6 waivers; 7 tampering."
)


class _DeferredCommand(TyperCommand):
    """Stands for a subcommand in the list; becomes it when its arguments are read."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._module = module

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        module = importlib.import_module(f"{_PACKAGE}.{self._module}")
        one = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
        module.register(one)
        command = typer.main.get_command(one)
        command.name = self.name
        return command.make_context(*args, **kwargs)


app = typer.Typer(
    name=PROGRAM,
    help="What a platform plugin of Dougong can be trusted with, proved.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"{PROGRAM} {__version__} (specification {SPEC_VERSION})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print versions.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    del version


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ``None``: this process's arguments. Ends in ``SystemExit``.

    The last line of every end but a good one is ``dougong-conform: exit N: why``.
    """
    commands = typer.main.get_command(app)
    if not isinstance(commands, TyperGroup):
        raise TypeError("the command has no subcommands")
    for name, (module, summary) in COMMANDS.items():
        commands.add_command(_DeferredCommand(name, module, summary))
    try:
        commands(args=None if arguments is None else list(arguments), prog_name=PROGRAM)
    except SystemExit as exc:
        if exc.code == 2 and not _has_last_line():
            sys.stdout.flush()
            print(f"{PROGRAM}: exit 2: see the usage above", file=sys.stderr, flush=True)
        raise


def _has_last_line() -> bool:
    """Whether a command has said by itself why it ends with 2."""
    from dougong_conformance.cli import usage

    return usage.has_spoken()


if __name__ == "__main__":
    main()
