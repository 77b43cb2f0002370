"""The C side of the kernels: structures and function prototypes, field by field as in ``csrc``."""

from __future__ import annotations

import ctypes
from typing import ClassVar

import torch

_POINTER = ctypes.c_void_p
_INT64 = ctypes.c_int64
_INT32 = ctypes.c_int32

DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1}
STORAGE_CODES = {"q4_0": 1, "q4_1": 2, "q8_0": 3}
"""Formats of weights that stay as files store them; 0 is a plain dtype."""

_STRIDES = [
    (f"{which}_stride_{axis}", _INT64) for which in "kv" for axis in ("block", "head", "token")
]


class LinearDesc(ctypes.Structure):
    """``dg_linear_desc``."""

    _fields_: ClassVar = [
        ("weight", _POINTER),
        ("bias", _POINTER),
        ("n", _INT64),
        ("k", _INT64),
        ("dtype", _INT32),
        ("out_dtype", _INT32),
        ("activation", _INT32),
        ("num_threads", _INT32),
        ("storage", _INT32),
    ]


class NormDesc(ctypes.Structure):
    """``dg_norm_desc``."""

    _fields_: ClassVar = [
        ("weight", _POINTER),
        ("hidden", _INT64),
        ("eps", ctypes.c_float),
        ("dtype", _INT32),
        ("weight_offset", _INT32),
        ("round_before_weight", _INT32),
        ("num_threads", _INT32),
    ]


class RopeDesc(ctypes.Structure):
    """``dg_rope_desc``."""

    _fields_: ClassVar = [
        ("cos_sin", _POINTER),
        ("rotary_dim", _INT64),
        ("head_dim", _INT64),
        ("num_heads", _INT32),
        ("num_kv_heads", _INT32),
        ("interleaved", _INT32),
        ("dtype", _INT32),
        ("num_threads", _INT32),
    ]


class CacheDesc(ctypes.Structure):
    """``dg_cache_desc``."""

    _fields_: ClassVar = [
        ("k_cache", _POINTER),
        ("v_cache", _POINTER),
        *_STRIDES,
        ("block_size", _INT64),
        ("head_dim", _INT64),
        ("num_kv_heads", _INT32),
        ("dtype", _INT32),
        ("cache_dtype", _INT32),
        ("num_threads", _INT32),
    ]


class AttentionDesc(ctypes.Structure):
    """``dg_attention_desc``."""

    _fields_: ClassVar = [
        ("k_cache", _POINTER),
        ("v_cache", _POINTER),
        *_STRIDES,
        ("block_size", _INT64),
        ("head_dim", _INT64),
        ("sliding_window", _INT64),
        ("num_heads", _INT32),
        ("num_kv_heads", _INT32),
        ("dtype", _INT32),
        ("cache_dtype", _INT32),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        ("num_threads", _INT32),
    ]


_P, _L, _I = _POINTER, _INT64, _INT32
_PROTOTYPES: dict[str, tuple[type, ...]] = {
    "dg_advise_huge_pages": (_P, _L),
    "dg_pack_linear": (_P, _L, _P, _L, _L, _L, _I, _P, _I),
    "dg_pack_blocks": (_P, _P, _L, _L, _L, _I, _I, _P, _I),
    "dg_linear": (_P, _P, _L, _L, _P, _L),
    "dg_embedding": (_P, _L, _L, _I, _I, _P, _L, _P, _L),
    "dg_embedding_blocks": (_P, _L, _I, _I, _P, _L, _P, _L),
    "dg_rms_norm": (_P, _P, _L, _P, _L, _L, _P, _L),
    "dg_argmax_rows": (_P, _L, _L, _L, _P, _I),
    "dg_exp": (_P, _P, _L),
    "dg_rope": (_P, _P, _L, _P, _L, _P, _L),
    "dg_write_kv": (_P, _P, _L, _P, _L, _P, _L),
    "dg_rope_and_write_kv": (_P, _P, _P, _L, _P, _L, _P, _L, _P, _P, _L),
    "dg_paged_attention": (_P, _P, _L, _P, _L, _P, _P, _L, _P, _L),
    "dg_attention_workspace": (_P, _P),
}


def load_library(path: str) -> ctypes.CDLL:
    """Load a compiled library and declare its functions.

    Raises:
        OSError: The file cannot be loaded.
        AttributeError: It lacks one of the functions.
    """
    library = ctypes.CDLL(path)
    for name, arguments in _PROTOTYPES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = None
    return library
