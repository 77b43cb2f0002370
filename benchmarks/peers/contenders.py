"""Who can take part, and with which settings."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.peers.contender import ContenderSpec
from benchmarks.peers.install import environment_of, python_of

MAX_MODEL_LEN = 2048
MAX_NUM_SEQS = 32


def known_contenders(cache: Path, dougong_python: Path) -> dict[str, ContenderSpec]:
    """Every contender by name; nothing is started.

    Args:
        cache: Folder with the peers' environments and ``model/``.
        dougong_python: Interpreter that has Dougong installed.
    """
    model = cache / "model"
    limits = {"max_model_len": MAX_MODEL_LEN, "max_num_seqs": MAX_NUM_SEQS}
    checkpoint = str(model / "bf16")
    specs = [
        ContenderSpec(
            name="dougong",
            python=dougong_python,
            module="benchmarks.peers.runner_dougong",
            options={"model": checkpoint, "dtype": "bfloat16", **limits},
        ),
        ContenderSpec(
            name="transformers",
            python=python_of(cache, "transformers"),
            module="benchmarks.peers.runner_transformers",
            options={"model": checkpoint},
        ),
    ]
    for name, file in (("llamacpp-bf16", "bf16.gguf"), ("llamacpp-q4", "demo.gguf")):
        spec = ContenderSpec(
            name=name,
            python=python_of(cache, "llamacpp"),
            module="benchmarks.peers.runner_llamacpp",
            options={"model": str(model / file), **limits},
        )
        specs.append(spec)
    for mode in ("eager", "compiled"):
        for suffix, environment in vllm_settings(cache).items():
            spec = ContenderSpec(
                name=f"vllm-{mode}{suffix}",
                python=python_of(cache, "vllm"),
                module="benchmarks.peers.runner_vllm",
                options={"model": checkpoint, "mode": mode, **limits},
                environment=environment,
            )
            specs.append(spec)
    return {spec.name: spec for spec in specs}


def vllm_settings(cache: Path) -> dict[str, dict[str, str]]:
    """Name suffix -> environment of the settings worth trying for vLLM on a CPU.

    * none: as installed; one core is kept free for the scheduler, so two cores compute on one.
    * ``-iomp``: with Intel's OpenMP loaded first, as vLLM's start-up log advises.
    * ``-all``: the same, and a thread on every core.

    Which is fastest depends on the machine and on the point, so the comparison uses the best.
    """
    openmp = str(environment_of(cache, "vllm") / "lib" / "libiomp5.so")
    every_core = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    return {
        "": {},
        "-iomp": {"LD_PRELOAD": openmp},
        "-all": {"LD_PRELOAD": openmp, "VLLM_CPU_OMP_THREADS_BIND": every_core},
    }
