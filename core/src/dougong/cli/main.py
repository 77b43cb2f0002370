"""The ``dougong`` command: its subcommands, each imported when it runs, and how errors end it.

A subcommand is a line in `COMMANDS` and a module with a `typer.Typer` named ``app``: one function
decorated with ``@app.command()``, or several for a command with parts of its own. At its top such a
module imports what its ``--help`` needs and nothing that imports torch or the engine. It raises
`DougongError` and prints no error of its own.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dougong import __version__, envs
from dougong.cli.exit_codes import exit_code
from dougong.contracts.version import CONTRACT_VERSION
from dougong.errors import DougongError
from dougong.log import configure_logging, get_logger

COMMANDS: Mapping[str, tuple[str, str]] = {
    "generate": ("dougong.cli.generate", "Answer prompts with a model."),
    "serve": ("dougong.cli.serve", "Serve a model over HTTP, with OpenAI's routes."),
    "chat": ("dougong.cli.chat", "Talk with a model in the terminal."),
    "bench": ("dougong.cli.bench", "Measure throughput and latency of a model or a server."),
    "explain": ("dougong.cli.explain", "Say what would run, who chose it, what was passed over."),
    "capabilities": ("dougong.cli.capabilities", "Say what a device can do, or save it to a file."),
    "doctor": ("dougong.cli.doctor", "List every platform plugin, what became of it, and test it."),
    "plugin": ("dougong.cli.plugin", "Write the project of a plugin of your own."),
}

_EPILOG = (
    "Exit codes: 0 success; 1 failure; 2 an option, a file or the choice of a platform is wrong; "
    "3 a plugin is broken or refused; 4 a request can never be served; 5 a device failed."
)


class _DeferredCommand(TyperCommand):
    """Stands for a subcommand in the list; becomes it when its arguments are read."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._module = module

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        app = importlib.import_module(self._module).app
        command = typer.main.get_command(app)
        command.name = self.name
        return command.make_context(*args, **kwargs)


app = typer.Typer(
    name="dougong",
    help="An LLM serving core that knows no chip.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"dougong {__version__} (contract {CONTRACT_VERSION})")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Log everything; show the traceback of an error.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print versions.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    configure_logging("DEBUG" if debug else envs.log_level())


def _report(error: DougongError) -> None:
    """Print the message last, so that the last line of the output is that of the error."""
    if get_logger(__name__).isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    sys.stdout.flush()
    print(f"dougong: error: {error}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ``None``: this process's arguments. Ends in ``SystemExit``."""
    commands = typer.main.get_command(app)
    assert isinstance(commands, TyperGroup)
    for name, (module, summary) in COMMANDS.items():
        commands.add_command(_DeferredCommand(name, module, summary))
    try:
        commands(args=None if arguments is None else list(arguments), prog_name="dougong")
    except DougongError as error:
        _report(error)
        raise SystemExit(exit_code(error)) from error


if __name__ == "__main__":
    main()
