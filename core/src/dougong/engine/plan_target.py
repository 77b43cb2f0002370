"""What is planned for: a platform of this machine (`file_target` has those described by a file)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dougong.contracts import Capabilities, ConfigChange, ConfigView, KernelReport, Registration
from dougong.engine.candidates import candidates_of, condition_environment
from dougong.engine.platform_answers import ask_platform, capabilities_of
from dougong.planner import Candidates
from dougong.platforms import LoadedPlatform, Verdict
from dougong.platforms.selection import Selection
from dougong.platforms.table import CPU, PluginRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTarget:
    """All that planning asks of a platform.

    Attributes:
        platform: Its name.
        wheel: Its distribution and version; empty: not installed here.
        reasons: Why this one, on which device.
        not_here: Platform → why it is not used, where ``cpu`` was taken for want of it.
        capabilities: Of the device.
        candidates: What it offers.
        registrations: Models and ops of plugins.
        environment: Variables that conditions name and that are set.
        propose: `Platform.check_and_update_config`.
    """

    platform: str
    wheel: str
    reasons: tuple[str, ...]
    capabilities: Capabilities
    candidates: Candidates
    not_here: Mapping[str, str]
    registrations: tuple[Registration, ...]
    environment: Mapping[str, str]
    propose: Callable[[ConfigView], Sequence[ConfigChange]]


def target_here(
    loaded: LoadedPlatform,
    capabilities: Capabilities | None = None,
    kernels: KernelReport | None = None,
) -> PlanTarget:
    """A platform of this machine.

    Args:
        loaded: With the one device that is used.
        capabilities: Of the device; ``None``: asked now.
        kernels: What the ranks could import; ``None``: nobody has tried yet.

    Raises:
        DeviceError: The device does not answer.
        PluginError: A query raised, or its answer cannot be used.
    """
    platform, selection = loaded.platform, loaded.selection
    if capabilities is None:
        capabilities = capabilities_of(loaded, device_index(loaded))
    candidates = candidates_of(platform, loaded.registrations, capabilities, kernels)
    return PlanTarget(
        platform=selection.platform,
        wheel=selection.row.wheel,
        reasons=selection.reasons,
        capabilities=capabilities,
        candidates=candidates,
        not_here=_platforms_not_here(selection),
        registrations=loaded.registrations,
        environment=condition_environment(candidates.ops),
        propose=lambda view: ask_platform(
            platform.name,
            "check_and_update_config",
            lambda: platform.check_and_update_config(view),
        ),
    )


def device_index(loaded: LoadedPlatform) -> int:
    """The device that the engine uses."""
    return next(iter(loaded.selection.device_indices), 0)


def _platforms_not_here(selection: Selection) -> dict[str, str]:
    if selection.platform != CPU or selection.is_explicit:
        return {}
    return {
        row.name: row.reason
        for row in selection.table.rows
        if row.verdict is Verdict.NOT_HERE and not row.is_extension and _is_automatic(row)
    }


def _is_automatic(row: PluginRow) -> bool:
    """Whether a plugin would have been taken if its device were here."""
    return row.plugin is None or row.plugin.auto_select
