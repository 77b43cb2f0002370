"""A platform as a capability file has it: its device as it is asked here, or a family unasked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dougong.cli import bandwidth_check
from dougong.cli.capabilities_attention import declare_attention
from dougong.contracts import Capabilities, DeviceFacts
from dougong.describe import CapabilityFile, capability_json, parse_capabilities
from dougong.engine.candidates import candidates_of, condition_environment
from dougong.engine.platform_answers import capabilities_of, claims_of, families_of
from dougong.errors import ConfigError, PluginError
from dougong.platforms import LoadedPlatform, read_kernels

DEFAULT_MEMORY_BYTES = 16 * 2**30
"""Of a device that nobody measured and of which nobody said it."""


def describe_platform(loaded: LoadedPlatform, *, is_measuring: bool) -> CapabilityFile:
    """Everything that planning would ask of the first chosen device.

    Raises:
        DeviceError: The device does not answer.
        PluginError: A query raised or answered something else than it had promised.
    """
    index = loaded.selection.device_indices[0]
    asked = capabilities_of(loaded, index)
    if is_measuring:
        facts = replace(asked.facts, memory_bandwidth=bandwidth_check.ask_bandwidth(loaded, index))
        asked = replace(asked, facts=facts)
    file = _offered(loaded, asked)
    values = condition_environment(file.ops)
    environment = {name: values.get(name) for name in file.environment}
    file = replace(file, kernels=read_kernels(loaded, index), environment=environment)
    return _readable(file, loaded)


def describe_family(
    loaded: LoadedPlatform, arch: str, memory_bytes: int | None = None
) -> CapabilityFile:
    """What planning would be told of a device of a family, from the wheel alone.

    Nothing is asked that needs a device or the vendor's runtime, and nothing of this machine is in
    the result: the same wheel gives the same file everywhere. What a device would have to tell
    stands in `CapabilityFile.assumed`.

    Args:
        loaded: The platform, whether or not its device is here.
        arch: Family.
        memory_bytes: Of the device; ``None``: `DEFAULT_MEMORY_BYTES`.

    Raises:
        PluginError: A query raised or answered something else than it had promised.
    """
    claims = claims_of(loaded, arch)
    facts = DeviceFacts(
        device_index=0,
        name=f"any {arch} (assumed)",
        arch=arch,
        memory_total_bytes=memory_bytes or DEFAULT_MEMORY_BYTES,
    )
    file = _offered(loaded, Capabilities(claims=claims, facts=facts))
    assumed = tuple(_assumptions(loaded, file, is_memory_given=memory_bytes is not None))
    return _readable(replace(file, assumed=assumed), loaded)


def _offered(loaded: LoadedPlatform, asked: Capabilities) -> CapabilityFile:
    """All that holds on any machine; variables of conditions count as not set, no kernels tried."""
    offered = candidates_of(loaded.platform, loaded.registrations, asked, None)
    named = sorted({name for op in offered.ops for name, _ in op.when.env})
    return CapabilityFile(
        platform=loaded.platform.name,
        wheel=loaded.selection.row.wheel,
        claims=asked.claims,
        facts=asked.facts,
        attention=declare_attention(offered.attention, asked.claims, loaded.platform.name),
        ops=offered.ops,
        quantization=offered.quantization,
        graph=offered.graph,
        environment=dict.fromkeys(named),
    )


def _assumptions(
    loaded: LoadedPlatform, file: CapabilityFile, *, is_memory_given: bool
) -> Iterator[str]:
    if file.claims.is_generic:
        known = ", ".join(families_of(loaded)) or "its wheel lists none"
        yield (
            f"family {file.claims.arch} is unknown to {file.wheel}, so that only what holds for "
            f"every family is claimed; known: {known}"
        )
    size = f"{file.facts.memory_total_bytes / 2**30:g} GiB of memory"
    yield f"{size}, as --memory says" if is_memory_given else f"{size}; --memory says how much"
    yield "driver and runtime of unknown version, so that a condition on one of them is not met"
    claimed = file.claims.features
    libraries = {one.when.library for one in file.ops if one.when.features <= claimed} | {
        one.library for one in file.attention.values() if one.features <= claimed
    }
    if names := sorted(name for name in libraries if name):
        yield f"these libraries load: {', '.join(names)}"
    if file.environment:
        yield f"not set: {', '.join(file.environment)}"


def _readable(file: CapabilityFile, loaded: LoadedPlatform) -> CapabilityFile:
    """What `explain` would refuse in a file is refused here, where its author is known."""
    try:
        parse_capabilities(capability_json(file))
    except ConfigError as error:
        problems = "".join(f"\n  - {problem}" for problem in error.problems)
        raise PluginError(
            f"{loaded.selection.row.wheel} answers with what no file of capabilities can have; "
            f"report this to its vendor:{problems}",
            plugin=loaded.selection.row.name,
        ) from error
    return file
