"""Make the libraries of vllm-xpu-kernels load beside a CPU build of PyTorch.

    python -m tools.prepare_xpu

Run by `lane_xpu` with the Python of its environment, which has the vendor's wheels. The vendor's
libraries look for others in their own folder: so everything that they need is put there, and no
process that imports them needs a search path. Level Zero's loader comes from Debian's `libze1`,
taken apart and not installed. Nothing here is a device: no kernel can run.

Exit status 75: the loader cannot be had from this machine.
"""

from __future__ import annotations

import getpass
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.elf import read_library
from tools.stub_libraries import system_libraries

CANNOT_BE_HAD = 75  # EX_TEMPFAIL
SOURCE = Path(__file__).with_name("no_xpu.c")
LEVEL_ZERO = "libze_loader.so.1"
STUBS = {"libc10_xpu.so": (), "libtorch_xpu.so": ("-DOF_TORCH",)}
# The folder is this user's: apt's own user may not write to it, and would warn.
_DOWNLOAD = ("apt-get", "download", "-qq", "-o", f"APT::Sandbox::User={getpass.getuser()}")
OF_ONEAPI = ("libsycl.so.9", "libintlc.so.5", "libimf.so")


def kernels_folder() -> Path:
    """Where the vendor's libraries lie.

    Raises:
        ModuleNotFoundError: vllm-xpu-kernels is not installed.
    """
    spec = importlib.util.find_spec("vllm_xpu_kernels")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("vllm_xpu_kernels is not installed in this environment")
    return Path(spec.origin).parent


def write_stubs(folder: Path) -> None:
    """Build ``no_xpu.c`` as the two libraries of PyTorch's XPU build."""
    for soname, options in STUBS.items():
        link = ("-shared", "-fPIC", f"-Wl,-soname,{soname}")
        command = ["gcc", "-O1", *options, *link, "-o", str(folder / soname), str(SOURCE)]
        subprocess.run(command, check=True)


def undefined_symbols(
    folder: Path, without: frozenset[str] = frozenset()
) -> dict[str, tuple[str, ...]]:
    """Symbols that nothing of what is to be loaded defines → the libraries that ask for them.

    Args:
        folder: Of the vendor's libraries, with all that was put beside them.
        without: Names of files there that are left out.
    """
    import torch

    paths = (path for path in sorted(folder.glob("*.so*")) if path.name not in without)
    beside = {path: read_library(path) for path in paths}
    of_torch = (Path(torch.__file__).parent / "lib").glob("lib*.so*")
    system = system_libraries()
    needed = {name for one in beside.values() for name in one.needed}
    others = [*of_torch, *(system[name] for name in needed if name in system)]
    defined = {
        name for one in (*beside.values(), *map(read_library, others)) for name in one.defined
    }
    missing: dict[str, list[str]] = {}
    for path, one in beside.items():
        if path.is_symlink():
            continue
        for name in {symbol.name for symbol in one.undefined} - defined:
            missing.setdefault(name, []).append(path.name)
    return {name: tuple(sorted(missing[name])) for name in sorted(missing)}


def _link_oneapi(folder: Path) -> None:
    """OneAPI's wheels put them into the environment's own ``lib``, where no linker looks."""
    for name in OF_ONEAPI:
        library = Path(sys.prefix) / "lib" / name
        if not library.exists():
            raise FileNotFoundError(f"{library}: install intel-sycl-rt and intel-cmplr-lib-rt")
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(library)


def _fetch_level_zero(folder: Path) -> bool:
    """Put Level Zero's loader there; False: Debian's package cannot be had."""
    if (folder / LEVEL_ZERO).exists():
        return True
    with tempfile.TemporaryDirectory() as work:
        try:
            subprocess.run([*_DOWNLOAD, "libze1"], cwd=work, check=True)
            package = next(Path(work).glob("libze1_*.deb"))
            subprocess.run(["dpkg", "-x", str(package), work], check=True)
        except (OSError, StopIteration, subprocess.CalledProcessError) as error:
            sys.stderr.write(
                f"prepare_xpu: {LEVEL_ZERO} of Debian's libze1 cannot be had: {error}\n"
            )
            return False
        loader = next(Path(work).rglob(LEVEL_ZERO)).resolve()
        (folder / LEVEL_ZERO).write_bytes(loader.read_bytes())
    return True


def main() -> int:
    """Prepare the environment and load the libraries once, in a new process."""
    folder = kernels_folder()
    if not _fetch_level_zero(folder):
        return CANNOT_BE_HAD
    _link_oneapi(folder)
    write_stubs(folder)
    if missing := undefined_symbols(folder):
        sys.stderr.write(f"prepare_xpu: nothing defines {missing}\n")
        return 1
    names = ("_C", "_moe_C", "_vllm_fa2_C", "_xpu_C")
    imports = ", ".join(f"vllm_xpu_kernels.{name}" for name in names)
    check = f"import torch, {imports}; print('torch', torch.__version__, 'and {imports}: loaded')"
    return subprocess.run([sys.executable, "-c", check], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
