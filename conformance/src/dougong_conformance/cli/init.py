"""``dougong-conform init``: what a plugin's repository needs to be judged at every change."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from dougong_conformance.cli.usage import usage_error


class Ci(StrEnum):
    """Systems that a file can be written for."""

    GITHUB = "github"
    GITLAB = "gitlab"
    BUILDKITE = "buildkite"


_CI_FILES = {
    Ci.GITHUB: (".github/workflows/conformance.yml", "github.yml"),
    Ci.GITLAB: (".gitlab/conformance.yml", "gitlab.yml"),
    Ci.BUILDKITE: (".buildkite/conformance.yml", "buildkite.yml"),
}
_BESIDE = (("conformance/README.md", "readme.md"), ("conformance/waivers.toml", "waivers.toml"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def init(
    plugin: Annotated[
        str, typer.Option(metavar="NAME", help="As its entry point is named.")
    ] = "mychip",
    ci: Annotated[Ci, typer.Option(help="Whose file to write.")] = Ci.GITHUB,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Root of the plugin's repository.")
    ] = Path(),
    is_json: Annotated[bool, typer.Option("--json", help="Print what was written.")] = False,
) -> None:
    """Write a CI file, a short README and an empty file of waivers; nothing is overwritten."""
    if not folder.is_dir():
        raise usage_error(f"{folder} is no folder")
    written, kept = [], []
    for name, template in (_CI_FILES[ci], *_BESIDE):
        path = folder / name
        if path.exists():
            kept.append(str(path))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(template, plugin), encoding="utf-8")
        written.append(str(path))
    if is_json:
        print(json.dumps({"written": written, "kept": kept}, indent=1))
        return
    for one in written:
        print(f"wrote {one}")
    for one in kept:
        print(f"kept  {one}, which was there")
    print(f"next: dougong-conform doctor --plugin {plugin}")


def _filled(template: str, plugin: str) -> str:
    from dougong_conformance import SPEC_VERSION

    text = files("dougong_conformance.cli").joinpath("init_files", template).read_text("utf-8")
    return text.replace("@PLUGIN@", plugin).replace("@SPEC@", SPEC_VERSION)
