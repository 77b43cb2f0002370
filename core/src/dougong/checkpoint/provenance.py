"""Where a checkpoint's dtype and weight format came from, in its own metadata's words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dougong.checkpoint.config import stated_dtype
from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat
from dougong.checkpoint.gguf_header import GGUFHeader, read_gguf_header
from dougong.checkpoint.safetensors_header import read_safetensors_metadata
from dougong.checkpoint.weight_summary import WeightSummary, dtype_for_format

DTYPE = "dtype"
WEIGHT_FORMAT = "weight_format"


def read_provenance(files: CheckpointFiles, weights: WeightSummary | None) -> dict[str, str]:
    """What metadata tells of the values that most often decide which kernel may run.

    Args:
        files: The checkpoint; headers are read.
        weights: Its summary; ``None``: weight files are missing.

    Returns:
        `DTYPE` and `WEIGHT_FORMAT` → a half sentence each, to stand behind a reason. A conversion
        is named where metadata shows it; nothing is guessed.
    """
    if files.format is CheckpointFormat.GGUF:
        return _of_gguf(read_gguf_header(files.weights[0]), weights)
    return _of_safetensors(files, weights)


def _of_gguf(header: GGUFHeader, weights: WeightSummary | None) -> dict[str, str]:
    conversion = "; ".join(_gguf_conversion(header))
    main = weights.main_format if weights else ""
    if main and dtype_for_format(main, default="") == "":
        dtype = f"a GGUF file names none; {main} weights are read as {dtype_for_format(main)}"
    else:
        dtype = f"a GGUF file names none; most weights are stored as {main}"
    return {DTYPE: f"{dtype}; {conversion}", WEIGHT_FORMAT: conversion}


def _gguf_conversion(header: GGUFHeader) -> Iterator[str]:
    metadata = header.metadata
    number = metadata.get("general.file_type")
    kind = _file_type_name(number) if isinstance(number, int) else ""
    yield f"the model was converted to GGUF{f' as {kind}' if kind else ''}" + (
        f" (general.file_type {number})" if kind else ""
    )
    if by := metadata.get("general.quantized_by"):
        yield f"quantized by {by}"
    if base := metadata.get("general.base_model.0.name"):
        yield f"made from {base}"
    if "quantize.imatrix.file" in metadata:
        yield "with an importance matrix"


def _file_type_name(number: int) -> str:
    """Name of a kind of GGUF file (``"Q4_K_M"``); a number where the library knows none."""
    from gguf import LlamaFileType

    try:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return str(number)


def _of_safetensors(files: CheckpointFiles, weights: WeightSummary | None) -> dict[str, str]:
    config = _raw_config(files)
    conversion = "; ".join(_conversion(files, config))
    dtype = _dtype_source(config, weights)
    if conversion:
        dtype = f"{dtype}; {conversion}"
    stored = f"most weights are stored as {weights.main_format}" if weights else ""
    how = conversion or stored
    return {DTYPE: dtype} | ({WEIGHT_FORMAT: how} if how else {})


def _raw_config(files: CheckpointFiles) -> dict[str, Any]:
    path = files.companion("config.json")
    if path is None:
        return {}
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}  # reading it for its own sake is what reports that
    return config if isinstance(config, dict) else {}


def _dtype_source(config: Mapping[str, Any], weights: WeightSummary | None) -> str:
    stated = stated_dtype(config)
    if stated is None:
        stored = f"most weights are stored as {weights.main_format}" if weights else ""
        return f"config.json names none; {stored or 'no weight file is here, so it is assumed'}"
    key = "torch_dtype" if config.get("torch_dtype") else "dtype"
    said = f"{key} of config.json"
    if weights is None or dtype_for_format(weights.main_format, default=stated) == stated:
        return said
    return f"{said}, though most weights are stored as {weights.main_format}"


def _conversion(files: CheckpointFiles, config: Mapping[str, Any]) -> Iterator[str]:
    quantization = config.get("quantization_config")
    if isinstance(quantization, Mapping):
        method = quantization.get("quant_method") or "a method without a name"
        yield f"the model was quantized afterwards (quantization_config: {method})"
        if tools := ", ".join(_tools(quantization)):
            yield f"made with {tools}"
    if version := config.get("unsloth_version"):
        yield f"saved by unsloth {version}"
    if files.weights:
        metadata = read_safetensors_metadata(files.weights[0])
        yield from (
            f"{key}: {value} (metadata of {files.weights[0].name})"
            for key, value in sorted(metadata.items())
            if any(word in key.lower() for word in ("convert", "quantiz", "producer"))
        )


def _tools(quantization: Mapping[str, Any]) -> Iterator[str]:
    """Names of programs, at the places where they are used to sign."""
    meta = quantization.get("meta")
    quantizer = meta.get("quantizer") if isinstance(meta, Mapping) else None
    yield from quantizer if isinstance(quantizer, list) else [quantizer] if quantizer else []
    producer = quantization.get("producer")
    if isinstance(producer, Mapping):
        yield " ".join(str(producer[key]) for key in ("name", "version") if key in producer)
    if version := quantization.get("autoround_version"):
        yield f"auto-round {version}"
