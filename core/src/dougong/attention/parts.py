"""What a backend makes: implementations and builders, held against the contract at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

import torch

from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionRequest,
    ImplementationError,
    KVCacheSpec,
    KVLayout,
    PluginError,
)
from dougong.ops.failures import blames_implementation, reason_of
from dougong.ops.guard import Classified
from dougong.platforms.contract_check import check_class

T = TypeVar("T")

_NOT_MADE = object()  # None would be an answer, and a wrong one


def make_impl(
    backend: AttentionBackend,
    request: AttentionRequest,
    scale: float,
    classified: Classified = nullcontext,
) -> AttentionImpl:
    """`AttentionBackend.make_impl`, checked.

    Raises:
        ContractError: It gave something that does not fit.
        ImplementationError: It raised.
        DeviceError: The device failed.
    """
    what = "make_impl()"
    impl = attempt(backend.name, what, lambda: backend.make_impl(request, scale), classified)
    check_attention_parts(backend, impl=impl)
    return impl


def make_builder(
    backend: AttentionBackend,
    spec: KVCacheSpec,
    layout: KVLayout,
    device: torch.device,
    classified: Classified = nullcontext,
) -> AttentionMetadataBuilder:
    """`AttentionBackend.make_builder`, checked.

    Raises:
        ContractError: It gave something that does not fit.
        ImplementationError: It raised.
        DeviceError: The device failed.
    """
    what = "make_builder()"
    builder = attempt(
        backend.name, what, lambda: backend.make_builder(spec, layout, device), classified
    )
    check_attention_parts(backend, builder=builder)
    return builder


def attempt(name: str, what: str, call: Callable[[], T], classified: Classified = nullcontext) -> T:
    """What ``call`` returns.

    Args:
        name: Of the backend whose code it is.
        what: That is called, for the message.
        call: The call.
        classified: Made around it; turns a vendor's exceptions into `DeviceError` where they are
            one.

    Raises:
        DeviceError: The device failed, not the backend. A `KernelFault` is the backend's.
        PluginError: As it was raised.
        ImplementationError: It raised anything else, which is chained.
    """
    try:
        with classified():
            return call()
    except PluginError:
        raise
    except Exception as exc:
        if not blames_implementation(exc):
            raise
        raise ImplementationError({name: f"{what} raised {reason_of(exc)}"}) from exc


def check_attention_parts(
    backend: AttentionBackend, impl: object = _NOT_MADE, builder: object = _NOT_MADE
) -> None:
    """Check what `make_impl` and `make_builder` of a backend returned; both, or the one given.

    Raises:
        ContractError: It is of a class that does not fit; every problem is listed.
    """
    made = (("make_impl", impl, AttentionImpl), ("make_builder", builder, AttentionMetadataBuilder))
    for maker, part, contract in made:
        if part is not _NOT_MADE:
            cls = type(part)
            subject = f"{cls.__module__}:{cls.__qualname__}, which {maker} of attention backend "
            check_class(cls, contract, subject=f"{subject}{backend.name!r} returned")
