"""``dougong capabilities``: what one device of a platform can do, for people or as a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dougong.contracts import AttentionBackend, Claims
    from dougong.describe import CapabilityFile, DeclaredAttention
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
        Path | None, typer.Option(help="Write the capability file.", metavar="FILE")
    ] = None,
) -> None:
    """Tell what the device of a platform can do, and what the platform offers for it.

    With --json or --save as a capability file, from which `dougong explain --capabilities FILE`
    makes the plan of this device on any machine.
    """
    from dougong.describe import capability_json, write_capability_file
    from dougong.platforms import open_present_platform

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
    from dougong.attention import load_backends
    from dougong.cli.bandwidth_check import ask_bandwidth
    from dougong.describe import CapabilityFile
    from dougong.ops import OpRegistry
    from dougong.platforms import read_capabilities, read_kernels

    index = loaded.selection.device_indices[0]
    found = read_capabilities(loaded, index)
    facts = found.facts
    if is_measuring:
        facts = replace(facts, memory_bandwidth=ask_bandwidth(loaded, index))
    return CapabilityFile(
        platform=loaded.platform.name,
        wheel=loaded.selection.row.wheel,
        claims=found.claims,
        facts=facts,
        kernels=read_kernels(loaded, index),
        attention={
            name: _declared(backend, found.claims, loaded)
            for name, backend in load_backends(loaded.platform).items()
        },
        ops=OpRegistry.from_registrations(loaded.registrations).candidates(),
        quantization=tuple(loaded.platform.get_supported_quantization()),
    )


def _declared(
    backend: AttentionBackend, claims: Claims, loaded: LoadedPlatform
) -> DeclaredAttention:
    """What of a backend fits into a file; its layout's name is that of a layer it could serve."""
    from dougong.contracts import KVCacheSpec, PluginError
    from dougong.describe import DeclaredAttention

    limits = backend.limits
    if limits is None:
        return DeclaredAttention(library=backend.library)
    kv_dtypes = [dtype for dtype in claims.kv_dtypes if dtype in (limits.kv_dtypes or (dtype,))]
    spec = KVCacheSpec(
        num_kv_heads=8,
        head_dim=min(limits.head_sizes, default=limits.head_size_multiple),
        dtype=next(iter(kv_dtypes), claims.kv_dtypes[0]),
        block_size=(limits.block_sizes or claims.kv_block_sizes)[0],
    )
    try:
        layout = backend.kv_layout(spec)
    except Exception as exc:
        raise PluginError(
            f"{loaded.selection.row.wheel}: kv_layout of attention backend {backend.name} raised "
            f"{type(exc).__name__}: {exc} (asked for {spec})",
            plugin=loaded.selection.row.name,
        ) from exc
    return DeclaredAttention(limits=limits, library=backend.library, layout=layout.name)
