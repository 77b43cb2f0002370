"""Make PyTorch 2.8 load without the libraries of a GPU that is not here.

    python -m tools.prepare_ipex

Run by `lane_ipex` with the Python of its environment, which has torch 2.8.0 installed without its
dependencies.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from tools.stub_libraries import write_stubs

_CHECK = """
import torch, intel_extension_for_pytorch as ipex
assert not torch.cuda.is_available(), "a stub answers like a device"
print(f"torch {torch.__version__}, intel_extension_for_pytorch {ipex.__version__}: loaded")
"""


def main() -> int:
    """Write the stubs beside torch's libraries and load both packages once, in a new process."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.stderr.write("prepare_ipex: torch is not installed in this environment\n")
        return 1
    folder = Path(spec.origin).parent / "lib"
    stubs = write_stubs(sorted(path for path in folder.glob("lib*.so*") if path.is_file()), folder)
    sys.stdout.write(f"{sum(stubs.values())} symbols in {len(stubs)} stub libraries: {stubs}\n")
    return subprocess.run([sys.executable, "-c", _CHECK], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
