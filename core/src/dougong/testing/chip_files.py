"""Are the capability files of a wheel what it says of its families, and can plans be made?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dougong.cli.capabilities_description import describe_family
from dougong.config import EngineArgs
from dougong.describe import (
    CapabilityFile,
    capability_json,
    read_capability_file,
    write_capability_file,
)
from dougong.engine.planning import explain
from dougong.engine.platform_answers import families_of
from dougong.errors import ConfigError, PluginError
from dougong.platforms import LoadedPlatform, open_for_description

UNKNOWN_FAMILY = "no-such-family"


def chip_file_problems(
    platform: str, folder: Path, scratch: Path, model: str = "demo"
) -> list[str]:
    """Hold the files of a folder against the installed wheel of a platform.

    Each family that `Platform.families` lists has a file ``FAMILY.json``, as
    ``dougong capabilities --platform PLATFORM --arch FAMILY --memory SIZE --save FILE`` writes it.
    A plan for ``model`` can be made from it, and from the file of a family that nobody knows, and
    says which of the two it is. Neither a device nor the vendor's runtime is used.

    Args:
        platform: Name of the platform.
        folder: Holds the files, and nothing else.
        scratch: An empty folder to write to.
        model: As ``dougong explain`` takes it.

    Returns:
        One sentence per problem; empty where all is well.
    """
    loaded = open_for_description(platform)
    if loaded is None:
        return [f"platform {platform!r} is not installed"]
    families = families_of(loaded)
    problems = [] if families else [f"{loaded.selection.row.wheel} lists no families"]
    problems += _strays(folder, families)
    for family in families:
        problems += _family_problems(loaded, folder / f"{family}.json", family, model)
    unknown = scratch / f"{UNKNOWN_FAMILY}.json"
    write_capability_file(unknown, describe_family(loaded, UNKNOWN_FAMILY))
    return problems + list(_plan_problems(unknown, model, is_generic=True))


def _strays(folder: Path, families: tuple[str, ...]) -> Iterator[str]:
    wanted = {f"{family}.json" for family in families}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json" and path.name not in wanted:
            yield f"{path.name} is of no family that the platform lists"


def _family_problems(loaded: LoadedPlatform, path: Path, family: str, model: str) -> Iterator[str]:
    how = f"dougong capabilities --platform {loaded.platform.name} --arch {family} --save {path}"
    if not path.is_file():
        yield f"family {family} has no file; make it with: {how}"
        return
    try:
        stored = read_capability_file(path)
    except ConfigError as error:
        yield str(error)
        return
    now = describe_family(loaded, family, stored.facts.memory_total_bytes)
    if _comparable(stored) != _comparable(now):
        yield f"{path.name} is not what the wheel says now; make it again with: {how}"
    yield from _plan_problems(path, model, is_generic=False)


def _comparable(file: CapabilityFile) -> str:
    """Its text, without the wheel's version, and without who said how much memory there is."""
    return capability_json(replace(file, wheel="", assumed=()))


def _plan_problems(path: Path, model: str, *, is_generic: bool) -> Iterator[str]:
    try:
        plan = explain(EngineArgs(model=model), path)
    except (ConfigError, PluginError) as error:
        yield f"{path.name}: no plan for {model}: {error}"
        return
    if plan.is_generic != is_generic:
        yield f"{path.name}: the plan's claims are {'not ' if is_generic else ''}the generic ones"
