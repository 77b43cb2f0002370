"""Which servers can take part, and with which settings: the same limits for all."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.contenders import MAX_MODEL_LEN, MAX_NUM_SEQS, vllm_settings
from benchmarks.peers.install import python_of
from benchmarks.peers.runner_vllm import KV_CACHE_GIB, QUIET
from benchmarks.serving.server import MODEL_NAME, ServerSpec

OURS = "dougong"
_LIMITS = (
    *("--served-model-name", MODEL_NAME, "--dtype", "bfloat16"),
    *("--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", str(MAX_NUM_SEQS)),
    "--no-enable-prefix-caching",
)


def known_servers(cache: Path, dougong_python: Path) -> dict[str, ServerSpec]:
    """Every server by name; nothing is started.

    Args:
        cache: Folder with the peers' environments and ``model/``.
        dougong_python: Interpreter that has Dougong installed.
    """
    specs = [dougong(dougong_python, str(cache / "model" / "bf16"))]
    for mode in ("eager", "compiled"):
        for suffix, environment in vllm_settings(cache).items():
            specs.append(_vllm(cache, mode, suffix, environment))
    return {spec.name: spec for spec in specs}


def dougong(python: Path, model: str) -> ServerSpec:
    """Our own server, of any model."""
    return ServerSpec(
        OURS, [str(python), "-m", "dougong.cli.main", "serve", "--model", model, *_LIMITS]
    )


def _vllm(cache: Path, mode: str, suffix: str, environment: dict[str, str]) -> ServerSpec:
    module = "vllm.entrypoints.openai.api_server"
    command = [str(python_of(cache, "vllm")), "-m", module]
    command += ["--model", str(cache / "model" / "bf16"), *_LIMITS]
    return ServerSpec(
        name=f"vllm-{mode}{suffix}",
        command=[*command, *(["--enforce-eager"] if mode == "eager" else [])],
        environment={**QUIET, "VLLM_CPU_KVCACHE_SPACE": KV_CACHE_GIB, **environment},
    )
