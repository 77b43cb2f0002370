"""Stub plugins as real wheels, and throw-away environments to install them into.

Nothing is fetched: the build back ends are those of the development environment, and a throw-away
environment sees that one's packages (torch, the core) behind its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import hatchling.build

from tests.support.stub_plugins import Stub


def build_wheel(stub: Stub, folder: Path) -> Path:
    """Build ``stub`` with hatchling; the wheel's path."""
    project = stub.write_project(folder / "project", "hatchling")
    with contextlib.chdir(project):
        name = hatchling.build.build_wheel(str(folder))
    return folder / name


@dataclass(frozen=True, slots=True)
class ThrowAwayEnvironment:
    """A virtual environment on top of the one that runs the tests.

    Attributes:
        folder: Its root.
    """

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> ThrowAwayEnvironment:
        """Make it; packages of the running environment come after its own."""
        venv.EnvBuilder(symlinks=True).create(folder)
        made = cls(folder)
        own = dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("purelib", "platlib"))
        lines = [f"import site; site.addsitedir({path!r})" for path in own]
        (made.site_packages / "zz_development.pth").write_text("\n".join(lines) + "\n")
        return made

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Where it installs to."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def pip(self, *arguments: str) -> None:
        """Run pip on this environment, without a network."""
        quiet = ("--disable-pip-version-check", "--no-input", "-q")
        done = self.run("-m", "pip", *quiet, *arguments)
        assert done.returncode == 0, done.stderr

    def install(self, *wheels: Path) -> None:
        """Install wheels, all in one call."""
        self.pip("install", "--no-deps", "--no-index", *map(str, wheels))

    def install_editable(self, project: Path) -> None:
        """``pip install -e``."""
        options = ("--no-deps", "--no-index", "--no-build-isolation")
        self.pip("install", *options, "-e", str(project))

    def uninstall(self, distribution: str) -> None:
        """``pip uninstall``."""
        self.pip("uninstall", "-y", distribution)

    def dougong(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        command = ("-m", "dougong.cli.main", *arguments)
        return self.run(*command, env=env, cwd=cwd, timeout_s=timeout_s)

    def run(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run its interpreter; variables of ``env`` are added to this process's.

        Raises:
            subprocess.TimeoutExpired: It did not end within ``timeout_s``.
        """
        return subprocess.run(
            [str(self.python), *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
            cwd=cwd or self.folder,
            check=False,
            timeout=timeout_s,
        )
