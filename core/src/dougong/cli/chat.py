"""``dougong chat``: a conversation in the terminal, with a model here or a server elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dougong.cli.chatting.local import LocalAnswerer
from dougong.cli.chatting.remote import RemoteAnswerer
from dougong.cli.chatting.session import HELP, ChatSession
from dougong.cli.engine_options import with_engine_options
from dougong.cli.http_exchange import Target
from dougong.cli.model_argument import is_model_given, model_of
from dougong.config.args import CommandDefault, EngineArgs
from dougong.config.decision import command_author
from dougong.errors import ConfigError
from dougong.messages.request import SamplingParams

if TYPE_CHECKING:
    from dougong.engine.llm import LLM

app = typer.Typer(add_completion=False)

_EPILOG = (
    "Examples: dougong chat demo; dougong chat --url http://127.0.0.1:8000. In the conversation: "
    + HELP
)


@app.command(epilog=_EPILOG)
@with_engine_options
def chat(
    context: typer.Context,
    args: EngineArgs,
    reference: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="As --model takes it. Default: demo.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="A server that runs already, of any make; no MODEL then.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DOUGONG_API_KEY", help="Shown to that server.")
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="The server's model. Default: the first that it has.")
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message.")] = None,
    chat_template: Annotated[
        str | None, typer.Option(help="File or Jinja text, instead of the model's own.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Of one answer. Default: what the model has room for.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0: always the most likely token.")] = 0.7,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens up to this sum.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Makes every draw repeatable.")] = None,
    has_stats: Annotated[
        bool, typer.Option("--stats/--no-stats", help="A line of numbers below each answer.")
    ] = True,
    is_verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log every decision of the start.")
    ] = False,
) -> None:
    """Talk with a model. Ctrl-C ends an answer, Ctrl-D the conversation."""
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    terminal = StandardTerminal()
    if url is not None:
        if is_model_given(context, reference) or chat_template is not None:
            raise ConfigError(
                "--url names a server, which has its own model and template. Leave MODEL and "
                "--chat-template out, or --url."
            )
        asked = _fields(params)
        remote = RemoteAnswerer(Target.of(url, api_key), served_model_name, asked)
        terminal.note(f"{remote.model} at {url}. /help tells the commands.")
        ChatSession(remote, terminal, system, has_stats).run()
        return
    args = replace(args, model=model_of(context, args.model, reference))
    if not is_verbose:
        _quiet_start()
    with _open_llm(args, chat_template) as llm:
        terminal.note(f"{args.model} on {llm.report.platform}. /help tells the commands.")
        ChatSession(LocalAnswerer(llm, params), terminal, system, has_stats).run()


class StandardTerminal:
    """This process's own: messages from the standard input, answers to the standard output.

    What is no part of an answer goes to the standard error, so that a conversation can be kept in a
    file or a message come from one.
    """

    def __init__(self) -> None:
        if sys.stdin.isatty():
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - its import alone gives input() history and editing

    def read(self, prompt: str) -> str:
        """See `Terminal.read`."""
        return input(prompt if sys.stdin.isatty() else "")

    def write(self, text: str) -> None:
        """See `Terminal.write`."""
        print(text, end="", flush=True)

    def note(self, text: str) -> None:
        """See `Terminal.note`."""
        print(text, file=sys.stderr, flush=True)


def _quiet_start() -> None:
    """No start report, here or in the engine's process, which takes the level over."""
    logger = logging.getLogger("dougong")
    if logger.level == logging.INFO:
        logger.setLevel(logging.WARNING)


def _open_llm(args: EngineArgs, chat_template: str | None) -> LLM:
    from dougong.engine.llm import LLM

    one = CommandDefault("max_num_seqs", 1, command_author("chat"), "it answers one at a time")
    return LLM.from_args(
        replace(args, defaults=(one,)), in_own_process=True, chat_template=chat_template
    )


def _fields(params: SamplingParams) -> dict[str, Any]:
    """Of a request; those that OpenAI's route knows."""
    names = ("max_tokens", "temperature", "top_p", "seed")
    return {name: value for name in names if (value := getattr(params, name)) is not None}
