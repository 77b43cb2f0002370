"""A double as an installed wheel, so that engines and the suite find it by name, children too."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path

from dougong.contracts import PlatformPlugin
from dougong.platforms.entry_points import find_entry_points

from dougong_conformance.ladder.platform_double import Double, descriptor_of

_DESCRIPTOR = """from dougong_conformance.ladder.installed_double import descriptor
from dougong_conformance.ladder.platform_double import Double
DOUBLE = Double(**{double!r})
plugin = descriptor(DOUBLE)
"""
_PLATFORM = """from dougong_conformance.ladder.platform_double import platform_of
from {module} import DOUBLE
DoublePlatform = platform_of(DOUBLE)
"""
_METADATA = "Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
_ENTRY_POINTS = """[dougong.platform_plugins]
{name} = {module}:plugin

[dougong.conformance_environment]
{prefix}_ = {module}
"""


@contextmanager
def installed_double(double: Double) -> Iterator[str]:
    """A double that this process and its children find by its name while the block runs.

    ``DOUGONG_PLUGINS`` names it alone, so that no other plugin is looked at.

    Yields:
        Its name: for ``LLM(model, platform=name)``.
    """
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "DOUGONG_PLUGINS")}
    module = _module(double)
    with tempfile.TemporaryDirectory(prefix="dougong-double-") as folder:
        write_wheel(double, Path(folder))
        sys.path.insert(0, folder)
        paths = [folder, double.import_path, before["PYTHONPATH"] or ""]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        os.environ["DOUGONG_PLUGINS"] = double.name
        importlib.invalidate_caches()
        try:
            yield double.name
        finally:
            sys.path.remove(folder)
            for one in (module, f"{module}_platform"):
                sys.modules.pop(one, None)
            for variable, value in before.items():
                if value is None:
                    os.environ.pop(variable, None)
                else:
                    os.environ[variable] = value


def write_wheel(double: Double, folder: Path) -> str:
    """Write what an installer would leave of a double's wheel: two modules and metadata.

    Its distribution and version are the vendor's with a mark, so that no report of a double passes
    for one of the wheel.

    Returns:
        The double's name.
    """
    module = _module(double)
    (folder / f"{module}.py").write_text(_DESCRIPTOR.format(double=asdict(double)), "utf-8")
    (folder / f"{module}_platform.py").write_text(_PLATFORM.format(module=module), "utf-8")
    distribution, version = double_of(double)
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    text = _METADATA.format(distribution=distribution, version=version)
    (info / "METADATA").write_text(text, "utf-8")
    prefix = (double.device or double.plugin).upper().replace("-", "_")
    entries = _ENTRY_POINTS.format(name=double.name, module=module, prefix=prefix)
    (info / "entry_points.txt").write_text(entries, "utf-8")
    return double.name


def double_of(double: Double) -> tuple[str, str]:
    """Distribution and version that a double goes by: ``("dougong-acme-double", "1.2")``."""
    point = next((one for one in find_entry_points() if one.name == double.plugin), None)
    if point is None:
        raise LookupError(f"no plugin named {double.plugin!r} is installed")
    return f"{point.distribution}-double", metadata.version(point.distribution)


def descriptor(double: Double) -> PlatformPlugin:
    """What the written module names."""
    return replace(descriptor_of(double), platform=f"{_module(double)}_platform:DoublePlatform")


def _module(double: Double) -> str:
    return double.name.replace("-", "_")
