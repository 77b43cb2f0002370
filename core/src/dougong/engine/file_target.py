"""A platform that a capability file describes, whether or not its device or its wheel is here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dougong.config import EngineArgs
from dougong.contracts import AttentionBackend
from dougong.describe.capability_file import CapabilityFile, read_capability_file
from dougong.engine.plan_target import PlanTarget, target_here
from dougong.errors import ConfigError
from dougong.ops import OpRegistry
from dougong.planner import Candidates
from dougong.platforms import open_for_description
from dougong.reference import ReferenceAttentionBackend


def target_in_file(path: Path, args: EngineArgs) -> PlanTarget:
    """What a file describes.

    Where the platform's wheel is installed, it is asked for its backends and ops and for its
    proposals, and the file says what the device can do. Otherwise the file says all, and attention
    in plain torch is there beside it, as everywhere.

    Raises:
        ConfigError: The file cannot be read, or contradicts an option.
        PluginError: The installed wheel is broken or refused.
    """
    file = read_capability_file(path)
    _check_options(args, file, path)
    loaded = open_for_description(file.platform)
    if loaded is None:
        return _described(file, path)
    target = target_here(loaded, file.capabilities, file.kernels)
    reason = f"{file.facts.name}, as {path} describes it"
    return replace(target, reasons=(*target.reasons, reason))


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


def _described(file: CapabilityFile, path: Path) -> PlanTarget:
    plain = ReferenceAttentionBackend()
    attention: dict[str, AttentionBackend] = {**file.attention_backends(), plain.name: plain}
    core = OpRegistry.from_registrations(())
    quantization = {one.format: one for one in (*file.claims.quantization, *file.quantization)}
    return PlanTarget(
        platform=file.platform,
        wheel="",
        reasons=(
            f"platform {file.platform}: {file.facts.name}, as {path} describes it; its wheel is "
            "not installed here, so that the file alone says what it offers",
        ),
        not_here={},
        capabilities=file.capabilities,
        candidates=Candidates(
            attention=attention,
            ops=file.ops,
            op_keys=core.keys | {one.key for one in file.ops},
            quantization=tuple(quantization.values()),
            kernels=file.kernels,
        ),
        registrations=(),
        propose=lambda view: (),
    )
