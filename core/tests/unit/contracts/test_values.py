"""Small value types of the contract: answers, layouts, memory limits, marks."""

from __future__ import annotations

import pickle

import pytest

from dougong.contracts import (
    CONTRACT_VERSION,
    DeviceFacts,
    KernelFault,
    KVBuffer,
    KVLayout,
    Mark,
    RegistrationKind,
    Support,
    dtype_bytes,
)
from dougong.contracts.registration import add_mark, marked_objects, marks_of


def test_a_refusal_needs_a_reason() -> None:
    assert Support.yes()
    assert not Support.no("head_dim=7; takes 64")
    with pytest.raises(ValueError, match="needs a reason"):
        Support.no(" ")


def test_a_blocks_bytes_include_alignment_per_buffer() -> None:
    k = KVBuffer(name="k", block_shape=(16, 2, 20), dtype="bfloat16")
    v = KVBuffer(name="v", block_shape=(2, 20, 16), dtype="float8_e4m3fn", block_axis=1)
    assert (k.block_bytes, v.block_bytes) == (1280, 640)
    assert v.shape(9) == (2, 9, 20, 16)
    layout = KVLayout(name="x", buffers=(k, v), block_sizes=(16,), alignment_bytes=1024)
    assert layout.block_bytes == 2048 + 1024


def test_an_unknown_dtype_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown dtype 'fp8'; known: .*bfloat16"):
        dtype_bytes("fp8")


@pytest.mark.parametrize(("quota", "limit"), [(None, 100), (40, 40), (400, 100)])
def test_the_tighter_of_memory_and_quota_counts(quota: int | None, limit: int) -> None:
    facts = DeviceFacts(
        device_index=0,
        name="x",
        arch="y",
        memory_total_bytes=100,
        memory_free_bytes=50,
        memory_quota_bytes=quota,
    )
    assert facts.memory_limit_bytes == limit


def test_a_mark_stays_with_the_object_it_was_left_on() -> None:
    mark = Mark(kind=RegistrationKind.KERNEL, key="rms_norm", name="acme/x")

    class Parent:
        pass

    class Child(Parent):
        pass

    add_mark(Parent, mark)
    assert marks_of(Parent) == (mark,)
    assert marks_of(Child) == ()
    assert marks_of(7) == ()
    assert marked_objects([{"a": Parent, "b": Parent, "c": Child}]) == [(Parent, mark)]


def test_a_device_error_survives_a_process_border_with_every_field() -> None:
    error = KernelFault("lane 3", device_index=1, rank=2, step_id=7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is KernelFault
    assert str(again) == str(error) == "lane 3 (device=1, rank=2, step=7)"
    assert (again.device_index, again.rank, again.step_id) == (1, 2, 7)


def test_the_contract_has_a_version() -> None:
    major, minor = CONTRACT_VERSION.split(".")
    assert int(major) >= 1
    assert int(minor) >= 0
