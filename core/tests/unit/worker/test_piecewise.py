"""A forward cut at its attention layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch

from dougong.attention import Attention, AttentionOutputs, AttentionStep
from dougong.contracts import AttentionImpl
from dougong.worker.piecewise import PieceRecorder

HEADS, DIM = 2, 4


class Blocks:
    """Writes down which piece is open, and what happened in it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def piece(self, index: int) -> Iterator[None]:
        self.events.append(f"begin {index}")
        try:
            yield
        except ValueError:
            self.events.append(f"failed {index}")
            raise
        self.events.append(f"end {index}")


def layer(index: int) -> Attention:
    return Attention(index, HEADS, HEADS, DIM, 1.0)


def recorded(layers: list[Attention], blocks: Blocks, *, fails: bool = False) -> PieceRecorder:
    step = AttentionStep([None], [torch.zeros(3)], AttentionOutputs(8))
    x = torch.zeros(3, HEADS, DIM)
    with ExitStack() as stack:
        recorder = PieceRecorder(blocks.piece, stack)
        for one in layers:
            one.bind_backend(("any",), recorder.impl_for(one))
        recorder.begin()
        for one in layers:
            blocks.events.append(f"before {one.layer_index}")
            one(x, x, x, step)
            if fails:
                raise ValueError("after the first layer")
        recorder.end()
    return recorder


def test_a_piece_ends_where_attention_begins_and_the_next_one_begins_after_it() -> None:
    blocks = Blocks()
    recorder = recorded([layer(0), layer(1)], blocks)
    assert blocks.events == [
        *("begin 0", "before 0", "end 0"),
        *("begin 1", "before 1", "end 1"),
        *("begin 2", "end 2"),
    ]
    assert [call.layer.layer_index for call in recorder.calls] == [0, 1]


def test_a_model_without_attention_is_one_piece() -> None:
    blocks = Blocks()
    assert recorded([], blocks).calls == []
    assert blocks.events == ["begin 0", "end 0"]


def test_whatever_the_model_raises_reaches_the_piece_that_is_open() -> None:
    blocks = Blocks()
    with pytest.raises(ValueError, match="after the first layer"):
        recorded([layer(0)], blocks, fails=True)
    assert blocks.events[-2:] == ["begin 1", "failed 1"]


class Doubling(AttentionImpl):
    """Its output is twice the queries; it notes where keys went."""

    def __init__(self) -> None:
        self.slots: list[torch.Tensor] = []

    def write_kv(self, k, v, kv_cache, slot_mapping):  # type: ignore[no-untyped-def]  # as given
        self.slots.append(slot_mapping)

    def forward(self, q, k, v, kv_cache, metadata, out):  # type: ignore[no-untyped-def]  # as given
        assert metadata == "group 1"
        out.copy_(2 * q)


def test_a_call_is_made_again_on_what_its_tensors_hold_now() -> None:
    one = layer(0)
    (call,) = recorded([one], Blocks()).calls
    impl = Doubling()
    one.bind_backend(("any",), impl)
    one.bind_cache(1, ())
    call.q.fill_(3.0)
    slots = [torch.zeros(3), torch.ones(3)]
    call.run(AttentionStep(["group 0", "group 1"], slots))
    assert impl.slots == [slots[1]]
    assert (call.out == 6.0).all()
