"""``dougong serve``: a model behind OpenAI's HTTP routes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dougong import envs
from dougong.cli.engine_options import with_engine_options
from dougong.cli.model_argument import model_of
from dougong.config.args import EngineArgs

app = typer.Typer(add_completion=False)

_EPILOG = (
    "Examples: dougong serve demo; dougong serve ./my-model --port 9000 --served-model-name mine. "
    "SIGTERM or Ctrl-C lets open answers end, a second one ends them. Exit codes: 0 stopped; "
    "1 answers were cut short; 5 the engine died. The printed address, in a browser, is "
    "a status page with a chat; docs/server.md has the routes."
)
_PANEL = "Server"


@app.command(epilog=_EPILOG)
@with_engine_options
def serve(
    context: typer.Context,
    args: EngineArgs,
    reference: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="As --model takes it. Default: demo.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0: all.", rich_help_panel=_PANEL)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="0: any free one; the log says which.", rich_help_panel=_PANEL)
    ] = 8000,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            help="What clients call the model; repeatable. Default: MODEL as written.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Clients must show it; repeatable. Others on this machine can read an option: "
            "DOUGONG_API_KEY sets one unseen. Default: none is asked for.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    chat_template: Annotated[
        str | None,
        typer.Option(
            help="File or Jinja text, instead of the model's own.", rich_help_panel=_PANEL
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin whose pages may use the server, or '*'; repeatable. Default: none.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    max_body_bytes: Annotated[
        int, typer.Option(help="Most bytes of one request.", rich_help_panel=_PANEL)
    ] = 2 * 2**20,
    max_live_sequences: Annotated[
        int,
        typer.Option(
            help="Answers running and waiting; more get status 429.", rich_help_panel=_PANEL
        ),
    ] = 4096,
    drain_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="For open answers after SIGTERM.", rich_help_panel=_PANEL
        ),
    ] = 60.0,
    allow_lora_updates: Annotated[
        bool,
        typer.Option(
            "--allow-lora-updates",
            help="Clients may load adapters from this machine's disk, and unload them.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    tool_call_parser: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How the model writes calls of tools: hermes or llama3_json. Default: as its chat "
            "template shows.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    dead_engine_grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Tell of a dead engine (status 503) before ending.",
            rich_help_panel=_PANEL,
        ),
    ] = 10.0,
) -> None:
    """Serve a model over HTTP: OpenAI's routes, streaming, metrics, health that tells the truth."""
    args = replace(args, model=model_of(context, args.model, reference))
    from dougong.server.settings import ServerSettings

    settings = ServerSettings(
        host=host,
        port=port,
        model_names=tuple(served_model_name or [_shown_name(args.model)]),
        api_keys=_api_keys(api_key),
        cors_origins=tuple(cors_origin or ()),
        max_body_bytes=max_body_bytes,
        max_live_sequences=max_live_sequences,
        drain_timeout_s=drain_timeout,
        dead_engine_grace_s=dead_engine_grace,
        allow_lora_updates=allow_lora_updates,
        tool_call_parser=tool_call_parser,
    )
    from dougong.server.run import serve as run_server

    run_server(args, settings, chat_template=chat_template)


def _shown_name(model: str) -> str:
    """A local path without its folders, which are nobody's business; a hub's id as it is."""
    path = Path(model).expanduser()
    return path.resolve().name if path.exists() else model


def _api_keys(given: list[str] | None) -> tuple[str, ...]:
    if given is not None:
        return tuple(given)
    key = envs.api_key()
    return () if key is None else (key,)
