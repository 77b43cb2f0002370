"""Computes, on the host, what the doubled device is asked for; the rest of torch_npu is real.

Installed as a process starts (`tools.prepare_lane` makes the entry point), so every child has it.
torch_npu's own code makes and frees memory, views it, copies between host and device, knows streams
and events. Of every other op of its dispatch key:

* one of torch's own runs on the host, over the same memory, by torch's kernel for the CPU,
* one of the vendor's runs by its reference, or is refused where there is none.

Refused, too, is what real hardware refuses: tensors of the host and of the device in one op.
"""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tests.double import recording
from tests.double.host_views import HostCall, host_view, on_device

_KEY = "PrivateUse1"
_VENDOR = ("npu", "atb")
_OWN = frozenset(
    {
        *("empty", "empty_strided", "empty_like", "new_empty_strided", "empty_with_format"),
        *("unsafe_empty_with_format", "empty_with_swapped_memory", "resize_", "resize_as_"),
        *("as_strided", "as_strided_", "view", "_reshape_alias", "unfold", "squeeze", "unsqueeze"),
        *("view_as_real", "view_as_complex", "set_", "is_set_to", "_lazy_clone", "record_stream"),
        *("is_pinned", "_pin_memory", "_local_scalar_dense", "get_npu_format", "get_storage_size"),
        *("_copy_from_and_resize", "flatten_dense_tensors", "npu_change_data_ptr"),
    }
)
"""Ops that stay torch_npu's: they make, view, read or describe memory and compute nothing."""

calls: Counter[str] = Counter()
"""Ops that were computed on the host, and how often, in this process."""

_libraries: list[Any] = []
_library: Any = torch.library.Library


def install() -> None:
    """Take over the ops of this process; once."""
    if _libraries:
        return
    importlib.import_module("torch_npu")  # registers what is taken over
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(_KEY)
    libraries: Mapping[str, Any] = {
        namespace: _library(namespace, "IMPL") for namespace in ("aten", *_VENDOR)
    }
    _libraries.extend(libraries.values())
    real_copy = torch.library.get_kernel("aten::copy_", _KEY)
    for full in registered:
        namespace, _, name = full.partition("::")
        if namespace in libraries and name.partition(".")[0] not in _OWN and name != "copy_":
            libraries[namespace].impl(name, _emulated(full), _KEY, allow_override=True)
    recording.install()
    copy = functools.partial(_copy, real_copy)
    libraries["aten"].impl("copy_", copy, _KEY, with_keyset=True, allow_override=True)


def _emulated(full: str) -> Callable[..., Any]:
    namespace, _, name = full.partition("::")
    if namespace in _VENDOR:
        return _by_reference(full)
    packet, _, overload = name.partition(".")
    if full == "aten::_to_copy":
        return _to_copy
    op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    return _refused(full) if op is None else _on_host(full, op)


def _by_reference(full: str) -> Callable[..., Any]:
    def compute(*args: Any, **kwargs: Any) -> Any:
        # Not at the head: whoever imports torch may be one of the references, half imported.
        from tests.references import REFERENCES

        return REFERENCES.get(full, refuse)(*args, **kwargs)

    refuse = _refused(full)
    return _on_host(full, compute)


def _refused(full: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{full} has no reference, so the double cannot compute it")

    return refuse


def _on_host(full: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    place, name = _LIES_ON_THE_HOST.get(full, (-1, ""))

    def emulate(*args: Any, **kwargs: Any) -> Any:
        host = args[place] if 0 <= place < len(args) else kwargs.get(name)
        call = HostCall(full, args, kwargs, host)
        if isinstance(generator := kwargs.get("generator"), torch.Generator):
            raise NotImplementedError(f"{full}: the double has no random numbers of {generator}")
        calls[full] += 1
        return recording.run(compute, call)

    return emulate


_LIES_ON_THE_HOST = {"atb::_npu_paged_attention_splitfuse_v2": (6, "seq_len")}
"""Arguments that the vendor's op takes on the host, by place and name: the only ones there are."""


def _to_copy(source: torch.Tensor, **options: Any) -> torch.Tensor:
    """A copy in another dtype, on another device or in another order of memory."""
    non_blocking = options.pop("non_blocking", False)
    wanted = {name: value for name, value in options.items() if value not in (None, False)}
    target = torch.empty_like(source, **wanted)
    return target.copy_(source, non_blocking)


def _copy(
    real: Any,
    keys: torch._C.DispatchKeySet,
    target: torch.Tensor,
    source: torch.Tensor,
    non_blocking: bool = False,
) -> torch.Tensor:
    """Between host and device by torch_npu's own code; what it would compute on the way is computed
    here: another dtype, other strides, a copy inside one device."""
    if on_device(target) and on_device(source):
        calls["aten::copy_"] += 1
        call = HostCall("aten::copy_", (target,), {})
        call.kwargs["other"] = host_view(source)  # of any device: a copy may cross them
        recording.run(torch.Tensor.copy_, call)
        return target
    is_plain = target.dtype == source.dtype and target.shape == source.shape
    if is_plain and target.is_contiguous() and source.is_contiguous():
        real.call_boxed(keys, target, source, non_blocking)
        return target
    if on_device(target):
        staged = torch.empty(source.shape, dtype=source.dtype, device=target.device)
        real.call_boxed(keys, staged, source.contiguous(), False)
    else:
        staged = torch.empty(source.shape, dtype=source.dtype)
        real.call_boxed(keys, staged, source.contiguous(), False)
    return target.copy_(staged)
