"""Makes a device of an environment with torch_npu: the double's libraries, loaded as Python starts.

Run with the lane's Python before torch is imported there: torch_npu is installed by then, and
without the libraries ``import torch`` itself fails.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from tools.double_libraries import LIBRARIES, build

CANNOT_BE_HAD = 75
_PACKAGE = Path(__file__).parent.parent
_MODULE = "dougong_ascend_preload"
_METADATA = "Metadata-Version: 2.1\nName: dougong-ascend-preload\nVersion: 1.0\n"
_ENTRY_POINT = f"[torch.backends]\ndougong_ascend_double = {_MODULE}:emulate\n"


def prepare(site_packages: Path) -> None:
    """Write into an environment what gives it a device.

    Args:
        site_packages: Of the environment.

    Raises:
        RuntimeError: The libraries cannot be compiled.
    """
    build(site_packages / "dougong_ascend_double")
    order = "\n".join(LIBRARIES) + "\n"
    (site_packages / "dougong_ascend_double" / "order.txt").write_text(order, "utf-8")
    shutil.copy(_PACKAGE / "tests" / "double" / "preload.py", site_packages / f"{_MODULE}.py")
    start = f"import {_MODULE}; {_MODULE}.load()\n"
    (site_packages / f"{_MODULE}.pth").write_text(f"{_PACKAGE}\n{start}", "utf-8")
    info = site_packages / f"{_MODULE}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(_METADATA, "utf-8")
    (info / "entry_points.txt").write_text(_ENTRY_POINT, "utf-8")


def main() -> int:
    """Prepare the environment whose Python runs this."""
    site_packages = Path(sysconfig.get_path("purelib"))
    if not (site_packages / "torch_npu").is_dir():
        sys.stderr.write(f"torch_npu is not in {site_packages}: install it first\n")
        return CANNOT_BE_HAD
    try:
        prepare(site_packages)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return CANNOT_BE_HAD
    return 0


if __name__ == "__main__":
    sys.exit(main())
