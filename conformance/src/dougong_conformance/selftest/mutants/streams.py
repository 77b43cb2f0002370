"""Streams and events that promise an order which nobody keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_kernel, with_runtime
from dougong_conformance.session import PluginUnderTest


class _Event:
    """Another event behind the same calls."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def record(self, stream: Any = None) -> None:
        self.event.record() if stream is None else self.event.record(_inner(stream))

    def query(self) -> bool:
        return bool(self.event.query())

    def synchronize(self) -> None:
        self.event.synchronize()

    def elapsed_time(self, other: Any) -> float:
        return float(self.event.elapsed_time(other.event))


class _Stream:
    """Another stream behind the same calls."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def wait_event(self, event: Any) -> None:
        self.stream.wait_event(getattr(event, "event", event))

    def synchronize(self) -> None:
        self.stream.synchronize()


def _inner(stream: Any) -> Any:
    return getattr(stream, "stream", stream)


def _with_events(plugin: PluginUnderTest, cls: type[_Event]) -> PluginUnderTest:
    return with_runtime(plugin, lambda good: {"new_event": lambda self: cls(good.new_event(self))})


def _with_streams(plugin: PluginUnderTest, cls: type[_Stream]) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        return {
            "new_stream": lambda self: cls(good.new_stream(self)),
            "use_stream": lambda self, stream: good.use_stream(self, _inner(stream)),
        }

    return with_runtime(plugin, members)


@mutant("S01", "synchronize does not wait", killer="streams.waits_wait", mode="lazy")
def s01(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_runtime(plugin, lambda _good: {"synchronize": lambda self: None})


@mutant(
    "S02",
    "an event is always done",
    killer="streams.event_tells_the_truth",
    mode="lazy",
)
def s02(plugin: PluginUnderTest) -> PluginUnderTest:
    class Done(_Event):
        def query(self) -> bool:
            return True

    return _with_events(plugin, Done)


@mutant("S03", "wait_event is ignored", killer="streams.wait_event_orders", mode="lazy")
def s03(plugin: PluginUnderTest) -> PluginUnderTest:
    class Heedless(_Stream):
        def wait_event(self, event: Any) -> None:
            pass

    return _with_streams(plugin, Heedless)


@mutant("S04", "elapsed time is in seconds", killer="streams.elapsed_time_is_in_ms")
def s04(plugin: PluginUnderTest) -> PluginUnderTest:
    import time

    class Seconds(_Event):
        at = 0.0

        def record(self, stream: Any = None) -> None:
            super().record(stream)

        def synchronize(self) -> None:
            super().synchronize()
            self.at = time.perf_counter()

        def elapsed_time(self, other: Any) -> float:
            return max(1e-6, (other.at - self.at) if self.at else 0.02)

    return _with_events(plugin, Seconds)


@mutant(
    "S06",
    "blocks of work on one stream run in reverse",
    killer="streams.work_keeps_its_order",
    mode="lazy",
)
def s06(plugin: PluginUnderTest) -> PluginUnderTest:
    class Reversed(_Stream):
        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            self.blocks: list[Any] = []

        def synchronize(self) -> None:
            for one in reversed(self.blocks):
                one.synchronize()
            self.blocks.clear()
            super().synchronize()

    def members(good: Any) -> dict[str, Any]:
        @contextmanager
        def use_stream(self: Any, stream: Any) -> Iterator[None]:
            block = good.new_stream(self)
            stream.blocks.append(block)
            with good.use_stream(self, block):
                yield

        return {
            "new_stream": lambda self: Reversed(good.new_stream(self)),
            "use_stream": use_stream,
        }

    return with_runtime(plugin, members)


@mutant(
    "S07",
    "a kernel runs on a stream of its own that the caller's does not wait for",
    killer="streams.results_are_ordered_with_the_caller",
    mode="lazy",
)
def s07(plugin: PluginUnderTest) -> PluginUnderTest:
    import torch

    def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        private = torch.Stream(x.device)
        private.wait_stream(torch.accelerator.current_stream(x.device))
        with private:
            wide = x.float()
            scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
            return (wide * scale).to(x.dtype) * weight

    return with_kernel(plugin, "rms_norm", rms_norm)


@mutant(
    "N05",
    "record takes a stream and records on the current one",
    killer="streams.event_is_recorded_where_told",
    mode="lazy",
)
def n05(plugin: PluginUnderTest) -> PluginUnderTest:
    class Here(_Event):
        def record(self, stream: Any = None) -> None:
            self.event.record()

    return _with_events(plugin, Here)


@mutant(
    "N06",
    "the stream before is not restored after a block",
    killer="streams.previous_stream_is_restored",
    mode="lazy",
)
def n06(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        @contextmanager
        def use_stream(self: Any, stream: Any) -> Iterator[None]:
            entered = good.use_stream(self, stream)
            entered.__enter__()
            self.__dict__.setdefault("_entered", []).append(entered)  # left with the runtime
            yield

        return {"use_stream": use_stream}

    return with_runtime(plugin, members)


@mutant("N07", "an event's synchronize returns at once", killer="streams.waits_wait", mode="lazy")
def n07(plugin: PluginUnderTest) -> PluginUnderTest:
    class Hasty(_Event):
        def synchronize(self) -> None:
            pass

    return _with_events(plugin, Hasty)


@mutant("N08", "a stream's synchronize returns at once", killer="streams.waits_wait", mode="lazy")
def n08(plugin: PluginUnderTest) -> PluginUnderTest:
    class Hasty(_Stream):
        def synchronize(self) -> None:
            pass

    return _with_streams(plugin, Hasty)
