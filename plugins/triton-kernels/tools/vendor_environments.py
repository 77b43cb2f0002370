"""Environments with the vendors' own builds of triton, which all have one import name.

``python -m tools.vendor_environments`` makes them below the running environment, whose packages
they see as well; their own triton comes first. Exit code 75: a wheel cannot be had.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

CANNOT_BE_HAD = 75
WHEELS = {
    "ascend": ("triton-ascend==3.2.0", "ascendnpu-ir==1.2.0", "pybind11>=2.13"),
    "xpu": ("triton-xpu==3.3.0b1",),
}


def folder(name: str) -> Path:
    """Of one environment."""
    return Path(sys.prefix) / "vendor" / name


def python(name: str) -> Path:
    """Of one environment."""
    return folder(name) / "bin" / "python"


def make(name: str) -> None:
    """Make one anew.

    Raises:
        subprocess.CalledProcessError: A wheel cannot be had.
    """
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder(name)], check=True)
    site = folder(name) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    below = sysconfig.get_path("purelib")
    line = f"import site; site.addsitedir({below!r})\n"
    (site / "site-packages" / "below.pth").write_text(line, "utf-8")
    pip = (python(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "--no-deps", *WHEELS[name]], check=True)


def main() -> int:
    """Make all of them."""
    for name in WHEELS:
        try:
            make(name)
        except subprocess.CalledProcessError:
            return CANNOT_BE_HAD
    return 0


if __name__ == "__main__":
    sys.exit(main())
