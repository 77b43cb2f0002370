"""What a start does before it touches a device: the platform, the plan, and only then the weights.

A platform that is not there or an option that cannot be obeyed is refused before any weight is
fetched or looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dougong.checkpoint import CheckpointFiles, check_complete, resolve_reference
from dougong.config import EngineArgs
from dougong.engine.one_device import open_one_device
from dougong.engine.planning import PlannedStart, plan_start
from dougong.engine.saved_plan import with_saved_choices
from dougong.engine.start_times import timed
from dougong.log import get_logger
from dougong.models.registry import ModelRegistry
from dougong.platforms import (
    Conformance,
    LoadedPlatform,
    check_conformance,
    conformance_of,
)

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Where an engine will run, what, and how.

    Attributes:
        loaded: The platform, with the one device that is used.
        files: The model's files; none is missing.
        planned: What will run, as far as it is known before a device is open.
        conformance: The platform's certificate, or that it has none.
        seconds: What each part took, by name.
    """

    loaded: LoadedPlatform
    files: CheckpointFiles
    planned: PlannedStart
    conformance: Conformance
    seconds: Mapping[str, float] = field(default_factory=dict)


def prepare(args: EngineArgs) -> Preparation:
    """Open the platform, plan from the model's configuration, and only then see to its weights.

    Raises:
        ConfigError: What was asked for cannot work.
        PluginError: A plugin stops the start.
        DeviceError: The device does not answer.
    """
    seconds: dict[str, float] = {}
    args = with_saved_choices(args)
    with timed(seconds, "platform"):
        loaded = open_one_device(args)
        conformance = conformance_of(loaded)
        check_conformance(conformance, args.require_conformance)
    for change in ModelRegistry(loaded.registrations).changes:
        _logger.info("%s", change)
    with timed(seconds, "files"):
        files = resolve_reference(args.model, revision=args.revision, needs_weights=False)
    with timed(seconds, "plan"):
        planned = plan_start(args, loaded, files)
    with timed(seconds, "files"):
        if not planned.knows_weights:
            revision = files.revision or args.revision  # what the plan was made from
            files = resolve_reference(args.model, revision=revision)
        check_complete(files)
    if not planned.knows_weights:
        with timed(seconds, "plan"):
            capabilities = planned.inputs.capabilities
            planned = plan_start(args, loaded, files, capabilities=capabilities)
    return Preparation(
        loaded=loaded, files=files, planned=planned, conformance=conformance, seconds=seconds
    )


def warn_of_late_faults(loaded: LoadedPlatform) -> None:
    """Log plugins whose fault showed only when somebody tried them, each once.

    Those whose fault was known earlier were logged when the platform was chosen and loaded.
    """
    known = {(row.name, row.path) for row in loaded.selection.table.faults()}
    for row in loaded.table.faults():
        if (row.name, row.path) not in known:
            _logger.warning("not used: %s", row.sentence())
