"""Frames: every kind of tensor survives, and nothing that arrives is trusted."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dougong_conformance.runner import frames
from dougong_conformance.subject import Raised

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def crossed(pair: Pair, value: Any) -> Any:
    sender = threading.Thread(target=frames.send, args=(pair[0], value))
    sender.start()
    found = frames.receive(pair[1], time.monotonic() + 10)
    sender.join()
    return found


@pytest.mark.parametrize("name", sorted(frames.DTYPES))
def test_a_tensor_of_any_dtype_arrives_with_its_bits(pair: Pair, name: str) -> None:
    dtype = frames.DTYPES[name]
    bits = torch.randint(0, 2, (3, 4 * dtype.itemsize), dtype=torch.uint8)
    tensor = bits.view(dtype) if dtype is not torch.bool else bits.bool()
    found = crossed(pair, tensor)
    assert found.dtype is dtype
    assert torch.equal(found.view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(70.0).reshape(10, 7).t(),
        torch.arange(70.0).reshape(10, 7)[2:, ::3],
        torch.arange(9.0)[1:],
        torch.ones(1).expand(5, 6),
        torch.empty(0, 3),
        torch.tensor(2.5),
        torch.arange(400.0)[300:],
        torch.tensor([1 + 2j, 3j]).conj(),
        torch.ones(3, requires_grad=True),
    ],
    ids=["transposed", "gaps", "offset", "expanded", "empty", "scalar", "far", "conj", "grad"],
)
def test_strides_and_a_small_offset_survive(pair: Pair, tensor: torch.Tensor) -> None:
    found = crossed(pair, {"x": tensor})["x"]
    assert found.shape == tensor.shape
    assert found.stride() == tensor.stride()
    assert found.storage_offset() == min(tensor.storage_offset(), 64)
    assert torch.equal(found, tensor.detach().resolve_conj())


def test_what_lies_between_the_elements_survives(pair: Pair) -> None:
    poisoned = torch.full((4, 8), float("nan"))
    poisoned[:, :3] = 1.0
    found = crossed(pair, poisoned[:, :3])
    assert torch.isnan(found.as_strided((3, 8), (8, 1))[:, 3:]).all()


def test_plain_values_arrive_as_they_were(pair: Pair) -> None:
    value = {
        "nothing": None,
        "yes": True,
        "big": 2**80,
        "float": 0.1,
        "infinite": float("-inf"),
        "text": "Ä\n",
        "bytes": b"\x00\xff",
        "list": [1, [2, (3, "x")]],
        "tuple": (1, 2),
        "$": {"$": "tensor"},
    }
    assert crossed(pair, value) == value


def test_an_exception_as_data_arrives_as_what_it_is(pair: Pair) -> None:
    raised = Raised("E", ("E", "Exception"), "no", "trace", {"rank": 1})
    assert crossed(pair, [raised]) == [raised]


def test_large_tensors_arrive(pair: Pair) -> None:
    tensors = [torch.full((300_000,), float(number)) for number in range(3)]
    found = crossed(pair, tensors)
    assert all(torch.equal(one, other) for one, other in zip(found, tensors, strict=True))


@pytest.mark.parametrize("value", [{1: 2}, {3}, object(), torch.empty(2, device="meta")])
def test_what_is_not_plain_may_not_cross(pair: Pair, value: object) -> None:
    with pytest.raises(TypeError, match="cross"):
        frames.send(pair[0], value)


def test_a_closed_connection_is_said_to_be_closed(pair: Pair) -> None:
    pair[0].close()
    with pytest.raises(frames.ConnectionEnded):
        frames.receive(pair[1])
    with pytest.raises(frames.ConnectionEnded):
        frames.send(pair[1], torch.zeros(1000))


def test_half_a_frame_is_not_waited_for_for_ever(pair: Pair) -> None:
    pair[0].sendall(b"\x01")
    with pytest.raises(frames.DeadlinePassed):
        frames.receive(pair[1], time.monotonic() + 0.05)


TENSOR = {"$": "tensor", "dtype": "float32", "shape": [2], "strides": [1], "offset": 0}


@pytest.mark.parametrize(
    ("header", "blobs"),
    [
        (b"{", b""),
        (json.dumps(TENSOR).encode(), b"1234"),
        (json.dumps({**TENSOR, "strides": [1000]}).encode(), b"12345678"),
        (json.dumps({**TENSOR, "strides": [-1]}).encode(), b"12345678"),
        (json.dumps({**TENSOR, "offset": -4}).encode(), b"12345678"),
        (json.dumps({**TENSOR, "shape": [1 << 50]}).encode(), b"12345678"),
        (json.dumps({**TENSOR, "dtype": "evil"}).encode(), b"12345678"),
        (json.dumps({"$": "pickle"}).encode(), b""),
        (json.dumps({"$": "bytes", "n": 5}).encode(), b""),
        (b"[" * 100_000, b""),
    ],
)
def test_what_is_no_frame_is_refused(pair: Pair, header: bytes, blobs: bytes) -> None:
    message = struct.pack("<QQ", len(header), len(blobs)) + header + blobs
    sender = threading.Thread(target=pair[0].sendall, args=(message,))
    sender.start()
    with pytest.raises(frames.FrameError):
        frames.receive(pair[1], time.monotonic() + 10)
    sender.join()


def test_an_absurd_length_is_refused_before_anything_is_allocated(pair: Pair) -> None:
    pair[0].sendall(struct.pack("<QQ", 1 << 60, 0))
    with pytest.raises(frames.FrameError):
        frames.receive(pair[1])
