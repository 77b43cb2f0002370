"""``dougong capabilities``: what one device of a platform can do, for people or as a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dougong.describe import CapabilityFile
    from dougong.platforms import LoadedPlatform

app = typer.Typer()


@app.command()
def capabilities(
    platform: Annotated[
        str | None, typer.Option(help="As a start would be told; else DOUGONG_PLATFORM, or found.")
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(help="Index or uuid; of several the first is described.", metavar="LIST"),
    ] = None,
    is_measuring: Annotated[
        bool, typer.Option("--measure", help="Measure the memory bandwidth, by large copies.")
    ] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print the capability file.")] = False,
    save: Annotated[
        Path | None,
        typer.Option(help="Write the capability file, never over another file.", metavar="FILE"),
    ] = None,
) -> None:
    """Tell what the device of a platform can do, and what the platform offers for it.

    With --json or --save as a capability file, from which `dougong explain --capabilities FILE`
    makes the plan of this device on any machine.
    """
    from dougong.cli.new_file import check_new_file
    from dougong.describe import capability_json, write_capability_file
    from dougong.platforms import open_present_platform

    check_new_file(
        save,
        kept="a description that somebody may plan with",
        instead="plan with it: dougong explain MODEL --capabilities " + str(save),
    )
    loaded = open_present_platform(platform, devices)
    found = describe_platform(loaded, is_measuring=is_measuring)
    if save is not None:
        write_capability_file(save, found)
    if is_json:
        print(capability_json(found), end="")
        return
    from dougong.cli.capabilities_view import print_capabilities

    print_capabilities(found, loaded.selection.reasons)
    if save is not None:
        print(f"written to {save}; use it with: dougong explain MODEL --capabilities {save}")


def describe_platform(loaded: LoadedPlatform, *, is_measuring: bool) -> CapabilityFile:
    """Everything that planning would ask of the first chosen device.

    Raises:
        DeviceError: The device does not answer.
        PluginError: A query raised or answered something else than it had promised.
    """
    from dougong.cli.bandwidth_check import ask_bandwidth
    from dougong.cli.capabilities_attention import declare_attention
    from dougong.describe import CapabilityFile
    from dougong.engine.candidates import candidates_of, condition_environment
    from dougong.engine.platform_answers import capabilities_of
    from dougong.platforms import read_kernels

    index = loaded.selection.device_indices[0]
    asked = capabilities_of(loaded, index)
    offered = candidates_of(loaded.platform, loaded.registrations, asked, None)
    facts = asked.facts
    if is_measuring:
        facts = replace(facts, memory_bandwidth=ask_bandwidth(loaded, index))
    named = sorted({name for op in offered.ops for name, _ in op.when.env})
    values = condition_environment(offered.ops)
    file = CapabilityFile(
        platform=loaded.platform.name,
        wheel=loaded.selection.row.wheel,
        claims=asked.claims,
        facts=facts,
        kernels=read_kernels(loaded, index),
        attention=declare_attention(offered.attention, asked.claims, loaded.platform.name),
        ops=offered.ops,
        quantization=offered.quantization,
        graph=offered.graph,
        environment={name: values.get(name) for name in named},
    )
    _check_readable(file, loaded)
    return file


def _check_readable(file: CapabilityFile, loaded: LoadedPlatform) -> None:
    """What `explain` would refuse in a file is refused here, where its author is known."""
    from dougong.describe import capability_json, parse_capabilities
    from dougong.errors import ConfigError, PluginError

    try:
        parse_capabilities(capability_json(file))
    except ConfigError as error:
        problems = "".join(f"\n  - {problem}" for problem in error.problems)
        raise PluginError(
            f"{loaded.selection.row.wheel} answers with what no file of capabilities can have; "
            f"report this to its vendor:{problems}",
            plugin=loaded.selection.row.name,
        ) from error
