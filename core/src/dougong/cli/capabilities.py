"""``dougong capabilities``: what one device of a platform can do, for people or as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
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
    arch: Annotated[
        str | None,
        typer.Option(
            help="Describe any device of this family from the wheel alone: neither a device nor "
            "the vendor's software is needed. An unknown family gets generic claims.",
            metavar="FAMILY",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="With --arch: the device's memory, as 64GiB.", metavar="SIZE"),
    ] = None,
    is_listing: Annotated[
        bool, typer.Option("--list-archs", help="Print the families that the platform knows.")
    ] = False,
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
    makes the plan of this device on any machine. With --arch without the device.
    """
    from dougong.cli.byte_size import parse_size
    from dougong.cli.capabilities_description import describe_family, describe_platform
    from dougong.cli.new_file import check_new_file
    from dougong.describe import capability_json, write_capability_file
    from dougong.platforms import open_present_platform

    check_new_file(
        save,
        kept="a description that somebody may plan with",
        instead="plan with it: dougong explain MODEL --capabilities " + str(save),
    )
    if arch is not None or is_listing or memory is not None:
        _check_unasked(arch, devices, is_listing=is_listing, is_measuring=is_measuring)
        loaded = _open_unasked(platform)
        if arch is None:
            _print_families(loaded)
            return
        memory_bytes = None if memory is None else parse_size(memory, "--memory")
        found = describe_family(loaded, arch, memory_bytes)
    else:
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


def _check_unasked(
    arch: str | None, devices: str | None, *, is_listing: bool, is_measuring: bool
) -> None:
    """A family is described without its devices, and a list of families without any of them."""
    from dougong.errors import ConfigError

    if arch is None and not is_listing:
        raise ConfigError(
            "--memory says how much a device has that nobody asks: name its family with --arch. "
            "Without it the device tells its own."
        )
    if devices is not None or is_measuring or (is_listing and arch is not None):
        raise ConfigError(
            "--arch and --list-archs ask the wheel and no device: use one of them, without "
            "--devices and --measure."
        )


def _open_unasked(name: str | None) -> LoadedPlatform:
    """An installed platform, whether or not its device is here."""
    from dougong import envs
    from dougong.errors import PlatformSelectionError
    from dougong.platforms import open_for_description

    wanted = name or envs.platform()
    if wanted is None:
        raise PlatformSelectionError(
            "--arch and --list-archs ask the wheel of one platform: name it with --platform."
        )
    loaded = open_for_description(wanted)
    if loaded is None:
        raise PlatformSelectionError(
            f"platform {wanted!r} is not installed. Install its wheel, which needs neither the "
            "device nor the vendor's software for this; `dougong doctor` lists what is installed."
        )
    return loaded


def _print_families(loaded: LoadedPlatform) -> None:
    from dougong.engine.platform_answers import families_of

    families = families_of(loaded)
    if not families:
        print(f"{loaded.selection.row.wheel} lists no families; --arch takes any name")
    for family in families:
        print(family)
