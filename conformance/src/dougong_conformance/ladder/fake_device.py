"""Tracing on a device that is not here, by the rules of a real one.

`torch._subclasses.FakeTensorMode` gives tensors that have a device and no memory. It lets pass what
costs a real device a hidden copy or a wait: an index tensor on the host, a host tensor handed to a
custom op. Here these are refused, and copies between host and device are written down, so that a
test can say how many a step may have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dougong_conformance.ladder import device_guards

_COPIES = frozenset({"aten::_to_copy", "aten::copy_"})
_WAITS = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::nonzero",
        "aten::masked_select",
        "aten::equal",
        "aten::is_nonzero",
        "aten::_unique2",
        "aten::unique_dim",
        "aten::unique_consecutive",
    }
)
"""Ops whose result the host has to wait for: its value or its shape."""


class DeviceRuleBroken(RuntimeError):
    """Something that a real device refuses, or for which it makes the host wait unseen."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between host and device.

    Attributes:
        shape: Of the tensor.
        dtype: Of what is read.
        non_blocking: Whether the host may go on.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    non_blocking: bool


@dataclass
class FakeDevice:
    """What happened on the fake device.

    Attributes:
        device_type: ``"npu"``.
        mode: The fake tensor mode, for `FakeTensorMode.from_tensor`.
        h2d: Copies from host to device, in order.
        d2h: Copies from device to host, in order.
        ops: Names of the ops that ran on it, in order.
    """

    device_type: str
    mode: FakeTensorMode
    h2d: list[Copy] = field(default_factory=list)
    d2h: list[Copy] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """Its first one."""
        return torch.device(self.device_type, 0)

    def forget(self) -> None:
        """Start counting anew: at the begin of a step."""
        self.h2d.clear()
        self.d2h.clear()
        self.ops.clear()


@contextmanager
def fake_device(device_type: str, *, host_arguments: Collection[str] = ()) -> Iterator[FakeDevice]:
    """Everything made in the block is fake, and a device of this kind is there.

    Args:
        device_type: ``"cuda"``, ``"xpu"``, or one that torch does not know: ``"npu"``.
        host_arguments: Ops of the vendor that take host tensors beside the device's, by its
            documentation: ``{"atb::_npu_paged_attention"}``.

    Raises:
        RuntimeError: As `device_guards.register`.
        DeviceRuleBroken: In the block: tensors of host and device meet in one op (a number in a
            tensor without dimensions may), or the host would have to wait for the device.
    """
    device_guards.register(device_type)
    mode = FakeTensorMode(allow_non_fake_inputs=False)
    made = FakeDevice(device_type, mode)
    with mode, _Strict(made, frozenset(host_arguments)):
        yield made


class _Strict(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own has no types
    """Stands above the fake mode, which would not tell of these."""

    def __init__(self, told: FakeDevice, host_arguments: frozenset[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._told, self._host_arguments = told, host_arguments

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name
        if torch.is_inference_mode_enabled() and func.namespace != "prim":
            # Composite ops come whole then, with the copies and waits inside them.
            with self:
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if name in _COPIES:
            self._note_copy(name, args, kwargs)
        else:
            self._judge(name, tensors)
        return func(*args, **kwargs)

    def _judge(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        on_device = [one for one in tensors if one.device.type == self._told.device_type]
        if not on_device:
            return
        self._told.ops.append(name)
        if name in _WAITS:
            raise DeviceRuleBroken(f"{name} makes the host wait for {self._told.device_type}")
        others = [one for one in tensors if one.device != on_device[0].device]
        if name in self._host_arguments:
            others = [one for one in others if one.device.type != "cpu"]
        if strange := [one for one in others if one.device.type != "cpu" or one.dim()]:
            where = ", ".join(f"{one.device} {tuple(one.shape)}" for one in strange)
            raise DeviceRuleBroken(f"{name} on {on_device[0].device} is given a tensor on {where}")
        if any(one.dtype == torch.bool for one in tensors) and name in _INDEXING:
            raise DeviceRuleBroken(f"{name} by a mask makes the host wait: its shape is unknown")

    def _note_copy(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if name == "aten::copy_":
            target, source = args[0].device, args[1]
            non_blocking = bool(kwargs.get("non_blocking", len(args) > 2 and args[2]))
        else:
            source = args[0]
            target = torch.device(kwargs.get("device") or source.device)
            non_blocking = bool(kwargs.get("non_blocking", False))
        if not isinstance(source, torch.Tensor) or source.device.type == target.type:
            return
        copy = Copy(tuple(source.shape), source.dtype, non_blocking)
        if source.device.type == self._told.device_type:
            self._told.d2h.append(copy)
        elif target.type == self._told.device_type:
            self._told.h2d.append(copy)


_INDEXING = frozenset({"aten::index.Tensor", "aten::index", "aten::index_put", "aten::index_put_"})
