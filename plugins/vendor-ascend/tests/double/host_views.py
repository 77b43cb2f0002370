"""Tensors of the host over the memory of the doubled device, which is memory of the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

DEVICE = "npu"


def on_device(value: object) -> bool:
    """Whether it is a tensor of the device."""
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the host with the same memory, shape and strides."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    memory = torch._C._construct_storage_from_data_pointer(
        storage.data_ptr(), torch.device("cpu"), storage.nbytes()
    )
    view = torch.empty(0, dtype=tensor.dtype)
    return view.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())


class HostCall:
    """Arguments of one call, as the host may compute with them, and the way back.

    Args:
        op: Named in refusals.
        args: Of the call.
        kwargs: Of the call.
        host: The one tensor that the op takes on the host, where there is one.

    Raises:
        RuntimeError: Tensors of several devices meet, in the words of torch.
    """

    def __init__(
        self,
        op: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        host: torch.Tensor | None = None,
    ) -> None:
        self._views: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.device = _device_of(op, args, kwargs, host)
        self.args, self.kwargs = pytree.tree_map(self._to_host, (args, kwargs))

    def back(self, result: Any) -> Any:
        """What the host computed, on the device; what aliases an argument aliases it there too."""
        return pytree.tree_map(self._to_device, result)

    def _to_host(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and on_device(value):
            view = host_view(value)
            self._views.append((view, value))
            return view
        is_device = isinstance(value, torch.device) and value.type == DEVICE
        return torch.device("cpu") if is_device else value

    def _to_device(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        for view, own in self._views:
            if value is view:
                return self._resized(own, value) if value.shape != own.shape else own
            shares = value.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
            if value.numel() and shares:
                storage, place = own.untyped_storage(), value.storage_offset()
                made = torch.empty(0, dtype=value.dtype, device=self.device)
                return made.set_(storage, place, value.shape, value.stride())
        made = torch.empty_like(value, device=self.device)
        if value.numel():
            host_view(made).copy_(value)
        return made

    @staticmethod
    def _resized(own: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """An ``out=`` that the op made longer."""
        own.resize_(value.shape)
        host_view(own).copy_(value)
        return own


def _device_of(
    op: str, args: tuple[Any, ...], kwargs: dict[str, Any], host: torch.Tensor | None
) -> torch.device:
    tensors = [one for one in _tensors((args, kwargs)) if one is not host]
    devices = {one.device for one in tensors if on_device(one)}
    hosts = [one for one in tensors if not on_device(one) and one.dim()]
    if len(devices) > 1 or (devices and hosts):
        found = ", ".join(sorted({str(one.device) for one in tensors}))
        raise RuntimeError(
            f"{op}: expected all tensors to be on the same device, but found at least two: {found}"
        )
    if devices:
        return devices.pop()
    asked = torch.device(kwargs.get("device") or DEVICE)
    current = torch.get_device_module(DEVICE).current_device()
    return torch.device(DEVICE, current if asked.index is None else asked.index)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            yield leaf
