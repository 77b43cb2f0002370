"""Stub plugins on this process's path, as an installer leaves them; faster than a wheel."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dougong.platforms.discovery import discover
from dougong.platforms.entry_points import FoundEntryPoint, find_entry_points
from dougong.platforms.probing import ProbeCache
from dougong.platforms.table import PluginTable
from tests.support.stub_plugins import Stub

_NUMBERS = itertools.count()


class Installed:
    """Stubs of one test.

    Args:
        folder: Empty.
        monkeypatch: Takes them off the path again.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch, self._paths = folder, monkeypatch, list[str]()

    def add(self, stub: Stub) -> Stub:
        """Install ``stub`` for this process and its children; its package gets a new name."""
        # A module name is imported once per process, so every stub needs its own.
        unique = f"stub_{next(_NUMBERS)}"
        stub = replace(stub, package=unique)
        folder = self._folder / unique
        stub.write_installed(folder)
        self._monkeypatch.syspath_prepend(str(folder))
        self._paths.append(str(folder))
        self._monkeypatch.setenv("PYTHONPATH", os.pathsep.join(self._paths))
        return stub

    def points(self) -> list[FoundEntryPoint]:
        """Their entry points, and no others."""
        return find_entry_points(self._paths)

    def table(
        self, *, allowed: tuple[str, ...] | None = None, probes: ProbeCache | None = None
    ) -> PluginTable:
        """What discovery makes of them alone."""
        return discover(allowed=allowed, probes=probes or ProbeCache(), entry_points=self.points())
