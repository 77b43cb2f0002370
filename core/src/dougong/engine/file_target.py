"""A platform that a capability file describes, whether or not its device or its wheel is here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dougong.config import EngineArgs
from dougong.contracts import CONTRACT_VERSION, AttentionBackend
from dougong.describe import CapabilityFile, DeclaredAttention, read_capability_file
from dougong.engine.plan_target import PlanTarget, target_here
from dougong.errors import ConfigError
from dougong.ops.registry import OpRegistry
from dougong.planner import Candidates
from dougong.platforms import open_for_description
from dougong.reference import ReferenceAttentionBackend, ReferenceLoRAWrapper


def target_in_file(path: Path, args: EngineArgs) -> PlanTarget:
    """What a file describes.

    Where the platform's wheel is installed, it is asked for its backends and ops and for its
    proposals, and the file says what the device can do. Otherwise the file says all, and attention
    in plain torch is there beside it, as everywhere. Variables that conditions name have the values
    that the file gives them, never those of this machine.

    Raises:
        ConfigError: The file cannot be read, or contradicts an option.
        PluginError: The installed wheel is broken or refused.
    """
    core = OpRegistry.from_registrations(())
    properties = {key: op.property_names for key, op in core.ops.items()}
    file = read_capability_file(path, properties)
    _check_options(args, file, path)
    loaded = open_for_description(file.platform)
    if loaded is None:
        return _described(file, path, core)
    target = target_here(loaded, file.capabilities, file.kernels)
    found = f"{file.facts.name}, as {path} describes it"
    changed = _changed_since(file, loaded.selection.row.wheel, path)
    return replace(
        target,
        reasons=(*target.reasons, found, *changed, *_assumptions(file)),
        environment=file.set_environment,
    )


def _check_options(args: EngineArgs, file: CapabilityFile, path: Path) -> None:
    problems = []
    if args.platform not in (None, file.platform):
        problems.append(
            f"platform={args.platform} was asked for, and {path} describes a device of platform "
            f"{file.platform}. Leave the option out, or name another file."
        )
    if args.devices is not None:
        problems.append(
            f"devices={args.devices} was asked for, and {path} describes one device. Leave the "
            "option out."
        )
    if problems:
        raise ConfigError("--capabilities contradicts other options:", tuple(problems))


def _changed_since(file: CapabilityFile, wheel: str, path: Path) -> Iterator[str]:
    """Where what is asked here is not what was asked when the file was made."""
    if file.wheel and file.wheel != wheel:
        yield (
            f"{path} was made with {file.wheel}; {wheel} is installed here, and asked for backends "
            "and ops"
        )
    if file.contract != CONTRACT_VERSION:
        yield f"{path} was made under contract {file.contract}; this is contract {CONTRACT_VERSION}"


def _assumptions(file: CapabilityFile) -> Iterator[str]:
    return (f"assumed: {one}" for one in file.assumed)


def _described(file: CapabilityFile, path: Path, core: OpRegistry) -> PlanTarget:
    plain = ReferenceAttentionBackend()
    attention: dict[str, AttentionBackend] = {**file.attention_backends(), plain.name: plain}
    quantization = {one.format: one for one in (*file.claims.quantization, *file.quantization)}
    first = (
        f"platform {file.platform}: {file.facts.name}, as {path} describes it; its wheel is not "
        "installed here, so that the file alone says what it offers: layouts as it states them, "
        "backends in its order, no config proposals"
    )
    return PlanTarget(
        platform=file.platform,
        wheel="",
        reasons=(first, *_approximations(file, plain.name), *_assumptions(file)),
        not_here={},
        capabilities=file.capabilities,
        candidates=Candidates(
            attention=attention,
            ops=file.ops,
            op_keys=core.keys | {one.key for one in file.ops},
            quantization=tuple(quantization.values()),
            graph=file.graph,
            lora_wrapper=f"{ReferenceLoRAWrapper.__module__}:{ReferenceLoRAWrapper.__qualname__}",
            kernels=file.kernels,
        ),
        registrations=(),
        environment=file.set_environment,
        propose=lambda view: (),
    )


def _approximations(file: CapabilityFile, here: str) -> Iterator[str]:
    """What the file cannot say exactly of backends.

    Args:
        file: It.
        here: A backend that is the core's own, and asked itself.
    """
    usable = {
        name: one for name, one in file.attention.items() if one.limits is not None and name != here
    }
    if names := [name for name, one in usable.items() if not _says_every_layout(one, file)]:
        yield (
            f"approximate: the file does not state every KV layout of {', '.join(names)}; where it "
            "does not, K and V are taken to lie apart, aligned as the device claims"
        )
    if names := [name for name, one in usable.items() if one.has_own_checks]:
        yield (
            f"approximate: {', '.join(names)} may refuse more than the stated limits say, which "
            "only the wheel knows"
        )
    if names := [
        name for name, one in usable.items() if one.workspace_bytes or one.workspace_bytes_per_token
    ]:
        yield (
            f"approximate: workspace of {', '.join(names)} is that of a layer of common sizes on "
            "the machine where the file was made"
        )


def _says_every_layout(declared: DeclaredAttention, file: CapabilityFile) -> bool:
    limits = declared.limits
    assert limits is not None
    taken = limits.kv_dtypes or limits.dtypes
    return all(
        declared.layout_for(dtype) is not None for dtype in file.claims.kv_dtypes if dtype in taken
    )
