"""Installed wheels as their metadata has them; no module of theirs is imported."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from dougong_conformance.results import PluginIdentity

GROUP = "dougong.platform_plugins"
OWN_PLATFORM = "cpu"
_PYTEST_GROUP = "pytest11"
_SITE_HOOKS = ("sitecustomize.py", "usercustomize.py")


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """An entry point of the group, with the wheel that it comes from."""

    name: str
    value: str
    distribution: metadata.Distribution

    @property
    def wheel(self) -> str:
        """Distribution and version, for messages."""
        return f"{self.distribution.name} {self.distribution.version}"


def installed_plugins(import_path: str = "") -> list[InstalledPlugin]:
    """Every plugin that is installed, by name; of copies on several paths the first.

    Args:
        import_path: Folder that is searched before the others.
    """
    path = [import_path, *sys.path] if import_path else list(sys.path)
    found: dict[tuple[str, str], InstalledPlugin] = {}
    for distribution in metadata.distributions(path=path):
        for point in distribution.entry_points:
            if point.group == GROUP:
                one = InstalledPlugin(point.name, point.value, distribution)
                found.setdefault((point.name, distribution.name), one)
    return sorted(found.values(), key=lambda one: (one.name, one.distribution.name))


def identify(plugin: InstalledPlugin) -> PluginIdentity:
    """A wheel's name, version and RECORD, with every file that is not as RECORD says."""
    record = plugin.distribution.read_text("RECORD")
    return PluginIdentity(
        name=plugin.name,
        distribution=plugin.distribution.name,
        version=plugin.distribution.version,
        record_sha256=hashlib.sha256(record.encode()).hexdigest() if record else "",
        tampered=tuple(changed_files(plugin.distribution)),
        is_editable=is_editable(plugin.distribution),
    )


def changed_files(distribution: metadata.Distribution, *, suffix: str = "") -> Iterator[str]:
    """Files that RECORD names with a hash and that are missing or another on the disk.

    Args:
        distribution: Of the wheel; one without RECORD has none.
        suffix: Only files that end so.
    """
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    for row in rows:
        if len(row) < 2 or not row[1] or not row[0].endswith(suffix):
            continue
        algorithm, _, expected = row[1].partition("=")
        try:
            content = Path(str(distribution.locate_file(row[0]))).read_bytes()
            digest = hashlib.new(algorithm, content).digest()
        except (OSError, ValueError):
            yield f"{row[0]} (missing)"
            continue
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != expected:
            yield row[0]


def is_editable(distribution: metadata.Distribution) -> bool:
    """Installed from a source folder, or by no installer at all."""
    text = distribution.read_text("direct_url.json")
    try:
        info = json.loads(text).get("dir_info", {}) if text else {}
    except ValueError:
        return True
    return bool(info.get("editable"))


def start_up_files(distribution: metadata.Distribution) -> list[str]:
    """Files of a wheel that Python runs at the start of every process."""
    names = [str(one) for one in distribution.files or ()]
    is_own = is_editable(distribution)  # then pip's own .pth makes the folder importable
    return [one for one in names if one in _SITE_HOOKS or (one.endswith(".pth") and not is_own)]


def pytest_plugins(distributions: Sequence[metadata.Distribution] | None = None) -> list[str]:
    """Every ``pytest11`` entry point: ``"distribution: name = module"``."""
    found = distributions if distributions is not None else list(metadata.distributions())
    return sorted(
        {
            f"{one.name}: {point.name} = {point.value}"
            for one in found
            for point in one.entry_points
            if point.group == _PYTEST_GROUP
        }
    )


def find_distribution(name: str) -> metadata.Distribution | None:
    """An installed distribution; ``None``: there is none of that name."""
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
