"""An adapter's files, as peft saves them, on the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat
from dougong.checkpoint.tensors import TensorSource, open_tensors
from dougong.contracts import LoRAPair, LoRAWeights
from dougong.errors import CheckpointError, RequestError
from dougong.lora.peft_config import CONFIG_FILE, PeftConfig, read_peft_config

WEIGHTS_FILE = "adapter_model.safetensors"
_PICKLED = "adapter_model.bin"
_PREFIX = "base_model.model."
_SUFFIXES = (".lora_A.weight", ".lora_B.weight")
_MOST_TOLD = 5


def read_adapter(path: str) -> LoRAWeights:
    """Read and check an adapter; no device and no model is needed.

    Args:
        path: Folder with ``adapter_config.json`` and ``adapter_model.safetensors``.

    Raises:
        RequestError: Something is missing, damaged, or of a kind that is not computed here; the
            message names it.
    """
    folder = Path(path).expanduser()
    config = read_peft_config(folder)
    weights = folder / WEIGHTS_FILE
    if not weights.is_file():
        pickled = (
            f", and {_PICKLED} is never read, since loading it may run any program; convert it"
            if (folder / _PICKLED).is_file()
            else ""
        )
        raise refused(folder, f"it has no {WEIGHTS_FILE}{pickled}")
    files = CheckpointFiles(path, CheckpointFormat.SAFETENSORS, folder, (weights,))
    try:
        return _read(folder, config, open_tensors(files))
    except CheckpointError as exc:
        raise refused(folder, str(exc)) from exc


def refused(folder: Path, why: str) -> RequestError:
    """The error of an adapter that cannot be taken."""
    return RequestError(f"The adapter in {folder} cannot be loaded: {why}.", field="lora_path")


def _read(folder: Path, config: PeftConfig, source: TensorSource) -> LoRAWeights:
    modules = _modules(folder, source.names())
    pairs = {}
    for module, (a_name, b_name) in modules.items():
        a_shape, b_shape = source.shape(a_name), source.shape(b_name)
        if len(a_shape) != 2 or len(b_shape) != 2 or not a_shape[0] == b_shape[1] == config.rank:
            raise refused(
                folder,
                f"{module} has tensors of shapes {a_shape} and {b_shape}, which are no pair of "
                f"rank r={config.rank} as {CONFIG_FILE} says",
            )
        a = source.read(a_name, torch.float32)
        b = source.read(b_name, torch.float32).mul_(config.scale)
        if not (_is_finite(a) and _is_finite(b)):
            # One number that is none would reach other requests' rows by way of the mask.
            raise refused(folder, f"{module} has numbers that are infinite or none")
        pairs[module] = LoRAPair(a, b)
    return LoRAWeights(config.rank, pairs)


def _modules(folder: Path, names: tuple[str, ...]) -> Mapping[str, tuple[str, str]]:
    """Projection → its two tensors."""
    found: dict[str, dict[str, str]] = {}
    unknown = []
    for name in names:
        suffix = next((one for one in _SUFFIXES if name.endswith(one)), None)
        if suffix is None or not name.startswith(_PREFIX):
            unknown.append(name)
        else:
            module = name.removeprefix(_PREFIX).removesuffix(suffix)
            found.setdefault(module, {})[suffix] = name
    if unknown:
        raise refused(
            folder,
            f"{_listed(unknown)} are no part of a low-rank adapter of projections; such an adapter "
            f"has {_PREFIX}PROJECTION{_SUFFIXES[0]} and {_SUFFIXES[1]} alone",
        )
    if lonely := [module for module, own in found.items() if len(own) != len(_SUFFIXES)]:
        raise refused(folder, f"{_listed(lonely)} have one of the two tensors of a pair alone")
    if not found:
        raise refused(folder, f"{WEIGHTS_FILE} holds no tensor")
    return {module: (own[_SUFFIXES[0]], own[_SUFFIXES[1]]) for module, own in found.items()}


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(names[:_MOST_TOLD]) + more


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())
