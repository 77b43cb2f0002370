"""AITER as this wheel calls it: every call by name, checked against what is installed.

AITER (the distribution ``amd-aiter``) has no stable interface: arguments come and go between
releases. So each call that this wheel makes is written down here with its arguments, and `bind`
asks of each whether the installed version takes them. One that does not is reported missing with
the reason, and whatever needs it is passed over; nothing fails at the first request.

Most are ops of torch's dispatcher, called as ``torch.ops.aiter.<name>``. A few are Python functions
without an op; they are reached through `AITER`, whose attributes `bind` sets. ``aiter.rms_norm``
and the like name *libraries* in conditions: each call is one of its own, there or missing.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from dougong.contracts import KernelReport

from dougong_rocm.installation import version_of

DISTRIBUTION = "amd-aiter"
ARCHS = frozenset({"gfx942", "gfx950"})
"""Families of which the wheel has binary kernels."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """One call, as this wheel's source makes it.

    Attributes:
        num_positional: Arguments without a name.
        keywords: Names of the others.
        module: Where a Python function lies; empty: it is an op of torch's dispatcher.
    """

    num_positional: int
    keywords: tuple[str, ...] = ()
    module: str = ""


CALLS: Mapping[str, ExpectedCall] = {
    "rms_norm": ExpectedCall(3),
    "rmsnorm2d_fwd_with_add": ExpectedCall(6),
    "silu_and_mul": ExpectedCall(2),
    "gelu_and_mul": ExpectedCall(2),
    "gelu_tanh_and_mul": ExpectedCall(2),
    "rope_cached_positions_2c_fwd_impl": ExpectedCall(
        7, ("rotate_style", "reuse_freqs_front_part", "nope_first")
    ),
    "topk_softmax": ExpectedCall(4, ("need_renorm",)),
    "dynamic_per_token_scaled_quant": ExpectedCall(3),
    "gemm_a8w8": ExpectedCall(4, ("bias", "dtype")),
    "reshape_and_cache_flash": ExpectedCall(5, ("kv_cache_dtype", "k_scale", "v_scale")),
    "mha_varlen_fwd": ExpectedCall(
        5,
        (
            *("max_seqlen_q", "max_seqlen_k", "min_seqlen_q", "dropout_p", "softmax_scale"),
            *("logits_soft_cap", "zero_tensors", "is_causal", "window_size_left"),
            *("window_size_right", "return_softmax_lse", "return_dropout_randval"),
            *("out", "block_table"),
        ),
    ),
    "unified_attention": ExpectedCall(
        4,
        (
            *("cu_seqlens_q", "max_seqlen_q", "seqused_k", "max_seqlen_k", "softmax_scale"),
            *("causal", "window_size", "block_table", "softcap", "q_descale", "k_descale"),
            "v_descale",
        ),
        module="aiter.ops.triton.unified_attention",
    ),
    "fused_moe": ExpectedCall(5, module="aiter.fused_moe"),
    "shuffle_weight": ExpectedCall(1, module="aiter.ops.shuffle"),
}
"""Name → call. A test holds it against the source, so that neither goes without the other."""

PAGED_ATTENTION = "mha_varlen_fwd"
AITER = SimpleNamespace()
"""Python functions by name, once `bind` has found them."""


def library_of(name: str) -> str:
    """What conditions call a call."""
    return f"aiter.{name}"


def bind(archs: Collection[str]) -> KernelReport:
    """Import AITER and check each call.

    Args:
        archs: Of the GPUs of this process.

    Returns:
        Each call as loaded, or as missing with the reason.
    """
    if obstacle := _obstacle(archs):
        return KernelReport(missing={library_of(name): obstacle for name in CALLS})
    found = version_of(DISTRIBUTION) or "unknown"
    loaded, missing = [], {}
    for name, call in CALLS.items():
        if reason := _bind_one(name, call):
            missing[library_of(name)] = f"{DISTRIBUTION} {found}: {reason}"
        else:
            loaded.append(f"{library_of(name)} {found}")
    return KernelReport(loaded=tuple(loaded), missing=missing)


def _obstacle(archs: Collection[str]) -> str:
    """Why no call can be made."""
    if strange := sorted(set(archs) - ARCHS):
        return f"AITER serves {' and '.join(sorted(ARCHS))}; there is {', '.join(strange)} here"
    if not archs:
        return "no AMD GPU is visible to this process"
    try:
        importlib.import_module("aiter")
    except ImportError as error:
        return f"AITER cannot be imported ({error}); pip install {DISTRIBUTION}"
    except Exception as error:  # noqa: BLE001 - it runs tools of ROCm at import; the reason is kept
        first_line = str(error).partition("\n")[0]
        return (
            f"importing AITER failed with {type(error).__name__}: {first_line}; it needs ROCm's "
            "development files (hipcc, rocminfo, .info/version), found by ROCM_HOME"
        )
    return ""


def _bind_one(name: str, call: ExpectedCall) -> str:
    try:
        signature = _function(name, call) if call.module else op_signature(name)
    except Exception as error:  # noqa: BLE001 - its modules run code at import; the reason is kept
        return f"{name} is not there ({type(error).__name__}: {error})"
    if reason := unbound(signature, call):
        return reason
    return _paged_obstacle() if name == PAGED_ATTENTION else ""


def _paged_obstacle() -> str:
    """Why AITER cannot make its kernel for a paged cache; empty: it can, or nobody can say.

    At each call it chooses in Python what to build. In a published release (0.1.7.post2.dev18) that
    function fails for a paged cache, whatever the arguments, so it is asked before anybody counts
    on the kernel. It computes a name and touches no device.
    """
    import torch

    try:
        choose = importlib.import_module("aiter.ops.mha").cmdGenFunc_mha_varlen_fwd
        options = inspect.signature(choose).bind(*_paged_call(torch.device("meta")))
    except (ImportError, AttributeError, TypeError):
        return ""  # it chooses elsewhere, or by other arguments
    try:
        choose(*options.args)
    except Exception as error:  # noqa: BLE001 - third-party code; the reason is kept
        return f"it cannot choose what to build for a paged cache ({type(error).__name__}: {error})"
    return ""


def _paged_call(device: Any) -> tuple[Any, ...]:
    """Arguments of ``mha_varlen_fwd``, up to the block table."""
    import torch

    q = torch.empty(1, 1, 64, dtype=torch.bfloat16, device=device)
    cache = torch.empty(1, 128, 1, 64, dtype=torch.bfloat16, device=device)
    ends = torch.empty(2, dtype=torch.int32, device=device)
    numbers = (1, 128, 0, 0.0, 0.125, 0.0, False, True, -1, 0, False, False)
    return (q, cache, cache, ends, ends, *numbers, q, ends.unsqueeze(0))


def _function(name: str, call: ExpectedCall) -> inspect.Signature:
    function: Callable[..., Any] = getattr(importlib.import_module(call.module), name)
    setattr(AITER, name, function)
    return inspect.signature(function)


def op_signature(name: str) -> inspect.Signature:
    """The signature of ``torch.ops.aiter.<name>``.

    Raises:
        RuntimeError: There is no such op.
    """
    import torch

    schema = torch._C._get_schema(f"aiter::{name}", "")
    parameters = [
        inspect.Parameter(
            argument.name,
            inspect.Parameter.KEYWORD_ONLY
            if argument.kwarg_only
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.default_value
            if argument.has_default_value()
            else inspect.Parameter.empty,
        )
        for argument in schema.arguments
    ]
    return inspect.Signature(parameters)


def unbound(signature: inspect.Signature, call: ExpectedCall) -> str:
    """Why a signature does not take a call; empty: it does."""
    try:
        signature.bind(*range(call.num_positional), **dict.fromkeys(call.keywords))
    except TypeError as error:
        return f"its signature is {signature}, and this wheel's call does not fit: {error}"
    return ""
