"""Frames between judge and executor: a JSON header, then the bytes of its tensors, as they lie.

A frame is ``length of the header, length of the blobs`` (two little-endian uint64), the header as
JSON, and the blobs one after another. Tensors of any dtype and stride cross; strides, gaps between
elements and a small offset from the start of the memory are kept, since checks are about those.
What arrives may come from a plugin's process: nothing in it is trusted beyond its own bytes.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch

from dougong_conformance.subject import Raised

_LENGTHS = struct.Struct("<QQ")
_MAX_HEADER = 64 << 20
_MAX_BLOBS = 16 << 30
_MAX_OFFSET = 64  # elements: keeps the misalignment that a check made on purpose
_MARK = "$"

DTYPES: Mapping[str, torch.dtype] = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
    and not str(value).removeprefix("torch.").startswith(("q", "complex32"))
}
"""Every dtype by torch's name for it, but the quantized ones and one that torch calls unfit."""


class FrameError(Exception):
    """What arrived is no frame."""


class ConnectionEnded(Exception):
    """The other side closed, or its process is gone."""


class DeadlinePassed(Exception):
    """Nothing complete arrived in time."""


def encode(value: Any) -> list[bytes | memoryview]:
    """A plain value as the buffers of one frame.

    Raises:
        TypeError: Something in it may not cross.
    """
    blobs: list[memoryview | bytes] = []
    header = json.dumps(_plain(value, blobs), separators=(",", ":")).encode()
    lengths = _LENGTHS.pack(len(header), sum(len(blob) for blob in blobs))
    return [lengths + header, *blobs]


def send(connection: socket.socket, value: Any) -> None:
    """Send one frame.

    Raises:
        ConnectionEnded: The other side is gone.
        TypeError: Something in it may not cross.
    """
    buffers = encode(value)
    try:
        sent = connection.sendmsg(buffers[:64])
        for buffer in buffers:
            if sent >= len(buffer):
                sent -= len(buffer)
                continue
            connection.sendall(memoryview(buffer)[sent:])
            sent = 0
    except OSError as exc:
        raise ConnectionEnded(str(exc)) from exc


def receive(connection: socket.socket, deadline: float | None = None) -> Any:
    """Receive one frame; waits until ``deadline`` of ``time.monotonic`` (``None``: for ever).

    Raises:
        ConnectionEnded: The other side is gone.
        DeadlinePassed: The frame was not complete in time.
        FrameError: What arrived is none.
    """
    start = bytearray(_LENGTHS.size)
    _fill(connection, memoryview(start), deadline)
    header_size, blobs_size = _LENGTHS.unpack(start)
    if header_size > _MAX_HEADER or blobs_size > _MAX_BLOBS:
        raise FrameError(f"a frame of {header_size} + {blobs_size} bytes")
    header = bytearray(header_size)
    _fill(connection, memoryview(header), deadline)
    blobs = torch.empty(blobs_size, dtype=torch.uint8)
    if blobs_size:
        _fill(connection, _memory(blobs), deadline)
    try:
        return _value(json.loads(header), blobs)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, RuntimeError) as exc:
        raise FrameError(f"{type(exc).__name__}: {exc}") from exc


def _fill(connection: socket.socket, into: memoryview, deadline: float | None) -> None:
    while len(into):
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlinePassed
            connection.settimeout(left)
        try:
            count = connection.recv_into(into)
        except TimeoutError as exc:
            raise DeadlinePassed from exc
        except OSError as exc:
            raise ConnectionEnded(str(exc)) from exc
        if not count:
            raise ConnectionEnded("closed")
        into = into[count:]


def _plain(value: Any, blobs: list[memoryview | bytes]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return {_MARK: "tensor", **_tensor_header(value, blobs)}
    if isinstance(value, list):
        return [_plain(one, blobs) for one in value]
    if isinstance(value, tuple):
        return {_MARK: "tuple", "of": [_plain(one, blobs) for one in value]}
    if isinstance(value, Raised):
        parts = {one.name: _plain(getattr(value, one.name), blobs) for one in fields(value)}
        return {_MARK: "raised", "of": parts}
    if isinstance(value, (bytes, bytearray)):
        blobs.append(bytes(value))
        return {_MARK: "bytes", "n": len(value)}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"keys of a dict must be text to cross; these are {list(value)[:5]}")
        plain = {key: _plain(one, blobs) for key, one in value.items()}
        return {_MARK: "dict", "of": plain} if _MARK in plain else plain
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} may not cross")


def _tensor_header(tensor: torch.Tensor, blobs: list[memoryview | bytes]) -> dict[str, Any]:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise TypeError(f"a {tensor.layout} tensor on {tensor.device} may not cross; CPU only")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TypeError(f"a tensor of {name} may not cross")
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    offset = min(tensor.storage_offset(), _MAX_OFFSET)
    count = offset + _span(shape, strides)
    skipped = (tensor.storage_offset() - offset) * tensor.element_size()
    memory = torch.empty(0, dtype=torch.uint8).set_(
        tensor.untyped_storage(), skipped, (count * tensor.element_size(),), (1,)
    )
    blobs.append(_memory(memory))
    return {"dtype": name, "shape": shape, "strides": strides, "offset": offset}


def _memory(of: torch.Tensor) -> memoryview:
    array: Any = of.numpy()
    return memoryview(array)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements between the first and the last one, both included; 0 where there is none."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def as_told(data: Mapping[str, Any]) -> Raised:
    """An exception as its process handed it over; every part is made what it should be."""
    attributes = data.get("attributes")
    return Raised(
        kind=str(data.get("kind")),
        kinds=tuple(str(one) for one in data.get("kinds", ())),
        message=str(data.get("message")),
        traceback=str(data.get("traceback", "")),
        attributes=dict(attributes) if isinstance(attributes, Mapping) else {},
    )


class _Reader:
    """Takes blobs in the order in which the header names them."""

    def __init__(self, blobs: torch.Tensor) -> None:
        self._blobs = blobs
        self._at = 0

    def take(self, count: int) -> torch.Tensor:
        if count < 0 or self._at + count > self._blobs.numel():
            raise ValueError("the header names more bytes than there are")
        part = self._blobs[self._at : self._at + count]
        self._at += count
        return part

    def tensor(self, header: dict[str, Any]) -> torch.Tensor:
        dtype = DTYPES[header["dtype"]]
        shape, strides = _sizes(header["shape"]), _sizes(header["strides"])
        (offset,) = _sizes([header["offset"]])
        count = offset + _span(shape, strides)
        part = self.take(count * dtype.itemsize)
        storage = part.clone().untyped_storage()  # aligned, and its own
        return torch.empty(0, dtype=dtype).set_(storage, offset, shape, strides)

    def bytes(self, header: dict[str, Any]) -> bytes:
        (count,) = _sizes([header["n"]])
        return bytes(self.take(count).numpy().tobytes())


def _sizes(values: Any) -> tuple[int, ...]:
    sizes = tuple(values)
    if not all(type(one) is int and 0 <= one < 1 << 48 for one in sizes):
        raise ValueError(f"{sizes} are no sizes")
    return sizes


def _value(header: Any, blobs: torch.Tensor) -> Any:
    reader = _Reader(blobs)
    marked: Mapping[str, Callable[[dict[str, Any]], Any]] = {
        "tensor": reader.tensor,
        "bytes": reader.bytes,
        "tuple": lambda part: tuple(build(one) for one in part["of"]),
        "dict": lambda part: {key: build(one) for key, one in part["of"].items()},
        "raised": lambda part: as_told({key: build(one) for key, one in part["of"].items()}),
    }

    def build(part: Any) -> Any:
        if isinstance(part, list):
            return [build(one) for one in part]
        if isinstance(part, dict):
            if _MARK in part:
                return marked[part[_MARK]](part)
            return {key: build(one) for key, one in part.items()}
        return part

    return build(header)
