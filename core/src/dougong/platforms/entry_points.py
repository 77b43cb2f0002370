"""Entry points of the group, and which of several copies of a distribution counts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import importlib_metadata as metadata
from packaging.utils import canonicalize_name

from dougong.log import get_logger

GROUP = "dougong.platform_plugins"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntryPoint:
    """One entry point of the group, as its distribution's metadata has it.

    Attributes:
        name: Of the entry point.
        value: ``"package.module:object"``.
        distribution: Name of the distribution.
        version: Of the distribution.
        path: Of the metadata folder.
        requires: ``Requires-Dist`` lines.
        shadowed_by: Path of the copy of the same distribution that counts instead.
    """

    name: str
    value: str
    distribution: str
    version: str
    path: str
    requires: tuple[str, ...] = ()
    shadowed_by: str | None = None

    def load(self) -> object:
        """Import what the entry point names; anything may be raised."""
        found: object = metadata.EntryPoint(self.name, self.value, GROUP).load()
        return found


def find_entry_points(search_path: Sequence[str] | None = None) -> list[FoundEntryPoint]:
    """Every entry point of the group, copies of one distribution on several paths included.

    Args:
        search_path: Folders to look in; ``None``: ``sys.path``, with its import hooks.

    The first copy on the path counts, for it is the one that ``import`` finds. A folder that is
    reached twice (by a link, by ``.``) is one copy.
    """
    where: dict[str, Any] = {} if search_path is None else {"path": list(search_path)}
    first_copy: dict[str, str] = {}
    seen: set[str] = set()
    found: list[FoundEntryPoint] = []
    for distribution in metadata.Distribution.discover(**where):
        path = _metadata_path(distribution)
        points = [point for point in distribution.entry_points if point.group == GROUP]
        if not points or os.path.realpath(path) in seen:
            continue
        seen.add(os.path.realpath(path))
        name = canonicalize_name(distribution.name)
        if name not in first_copy:
            copies = metadata.Distribution.discover(name=distribution.name, **where)
            first_copy[name] = _metadata_path(next(iter(copies), distribution))
        found += _points_of(distribution, points, path, first_copy[name])
    return found


def _points_of(
    distribution: metadata.Distribution,
    points: Iterable[metadata.EntryPoint],
    path: str,
    first: str,
) -> list[FoundEntryPoint]:
    is_first = os.path.realpath(path) == os.path.realpath(first)
    if not is_first:
        _log.debug(
            "distribution %s is on two paths: %s counts, %s is shadowed by it",
            *(distribution.name, first, path),
        )
    return [
        FoundEntryPoint(
            name=point.name,
            value=point.value,
            distribution=distribution.name,
            version=distribution.version,
            path=path,
            requires=tuple(distribution.requires or ()),
            shadowed_by=None if is_first else first,
        )
        for point in points
    ]


def _metadata_path(distribution: metadata.Distribution) -> str:
    """The metadata folder where the finder tells it, else the folder that holds it."""
    return str(getattr(distribution, "_path", None) or distribution.locate_file(""))
