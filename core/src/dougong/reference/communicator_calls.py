"""Calls of a library, so that no thread of this process waits longer than its group lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import torch

from dougong.contracts import DeadlinePhase, DeviceError, UnsupportedError
from dougong.log import get_logger
from dougong.reference.communicator_group import Group
from dougong.reference.communicator_watch import Call, GroupWatch

_SLICE = timedelta(milliseconds=50)  # the longest that a waiter takes to see a failure
_POLL_S = 0.001
_PARTING_S = 2.0  # for the library's threads to end
_FAILED_PARTING_S = 0.1  # those of a failed group may hang, until the library's own timeout

logger = get_logger(__name__)


class _Parked:
    """A thread that waits in our place, for what neither waits in slices nor is interruptible.

    It has the two methods of a library's ``Work`` that the watch uses.
    """

    def __init__(self, action: Callable[[], Any]) -> None:
        self.is_over = threading.Event()
        self._failure: Exception | None = None
        threading.Thread(target=self._act, args=(action,), name="dougong wait", daemon=True).start()

    def is_completed(self) -> bool:
        return self.is_over.is_set()

    def wait(self) -> None:
        """Once it is over: raise what it failed with."""
        if self._failure is not None:
            raise self._failure

    def _act(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as exc:  # noqa: BLE001 - raised in the thread that waits for it
            self._failure = exc
        self.is_over.set()


class LibraryCalls:
    """One backend object of ``torch.distributed``, made, called, given back and made again.

    Args:
        group: The group.
        watch: Its watch.
        device: Of the tensors.
        is_stream_ordered: ``Work.wait()`` makes the stream wait; else it blocks the host.
    """

    def __init__(
        self, group: Group, watch: GroupWatch, device: torch.device, is_stream_ordered: bool
    ) -> None:
        self._group, self._watch, self._device = group, watch, device
        self._is_stream_ordered = is_stream_ordered
        self._library: Any = None

    @property
    def is_here(self) -> bool:
        """Whether it is made, and not given back."""
        return self._library is not None

    def make(self, make: Callable[[], Any], phase: DeadlinePhase, limit_s: float) -> None:
        """Make the library; every rank does, since most of them meet while they are made."""
        call = self._watch.begin("join", None, phase, limit_s)
        made: list[Any] = []
        try:
            self._park(lambda: made.append(make()))
            # Some libraries lose their peers when one that is ready leaves before all are.
            self._watch.meet(call)
        except Exception as exc:  # noqa: BLE001 - the vendor's; raised under the failure's name
            self._raise(call, exc)
        finally:
            self._watch.end(call)
        self._library = made.pop()

    def set_timeout(self, timeout: timedelta) -> None:
        """The library's own, for calls from now on."""
        if self._library is not None:
            self._library.set_timeout(timeout)

    def run(
        self,
        op: str,
        start: Callable[[Any], Any],
        phase: DeadlinePhase,
        limit_s: float,
        peer: int | None = None,
        *,
        is_sent: bool = False,
    ) -> Call:
        """Start one call; return when later work of the current stream is ordered after it.

        Args:
            op: Its name.
            start: Hands it to the library; returns the library's ``Work``.
            phase: Whose deadline is its own.
            limit_s: That deadline.
            peer: Of a call between two ranks: the other one.
            is_sent: The library sends a copy of its own, so nobody waits for the peer to take it.

        Raises:
            DeviceError: The group has failed, before this call or by it.
            UnsupportedError: There is no library now.
            Exception: The device's own, of other work, as the library raised it.
        """
        if self._library is None:
            raise UnsupportedError(
                f"{op} of {self._group.name}, which is suspended or destroyed; resume a suspended "
                "group before its next call"
            )
        call = self._watch.begin(op, peer, phase, limit_s)
        try:
            work = start(self._library)
            if self._is_stream_ordered:
                work.wait()
                call.work = work  # the watch keeps it until the device is done
            elif peer is None:
                self._wait_in_slices(work)
            elif is_sent:
                call.work = _Parked(work.wait)  # until the peer has taken it
            else:
                self._park(work.wait)
        except Exception as exc:  # noqa: BLE001 - the vendor's; raised under the failure's name
            self._raise(call, exc)
        if call.work is None:
            self._watch.end(call)
        self._watch.check()
        return call

    def wait_over(self, call: Call) -> None:
        """Block the host until the device has finished ``call``."""
        while not self._watch.is_over(call):
            self._watch.check()
            time.sleep(_POLL_S)
        self._watch.check()

    def idle_device(self) -> None:
        """Block the host until the device is idle."""
        if not self._is_stream_ordered:
            return
        try:
            torch.get_device_module(self._device.type).synchronize(self._device.index)
        except Exception as exc:
            if (failure := self._watch.explain()) is not None:
                raise failure from exc
            raise

    def abort(self) -> None:
        """Make the library let go of the device; it may take its time."""
        try:
            if (library := self._library) is not None:
                library.abort()
        except Exception as exc:  # noqa: BLE001 - the vendor's; the waiters are free already
            logger.warning("%s: the library's abort failed: %s", self._group.name, exc)

    def settle(self, phase: DeadlinePhase, limit_s: float) -> None:
        """Block the host until earlier calls are over, here and on every rank."""
        call = self._watch.begin("suspend", None, phase, limit_s)
        try:
            self.idle_device()
            while not self._watch.is_alone(call):
                self._watch.check()
                time.sleep(_POLL_S)
            self._watch.meet(call)
        finally:
            self._watch.end(call)

    def part(self) -> None:
        """Give it back; what hangs in it is left to a thread that nobody waits for."""
        held, self._library = [self._library], None

        def let_go() -> None:
            try:
                if (library := held.pop()) is not None:
                    library.shutdown()
            except Exception as exc:  # noqa: BLE001 - the vendor's; the group is over anyhow
                logger.warning("%s: the library's shutdown failed: %s", self._group.name, exc)

        thread = threading.Thread(target=let_go, name="dougong part", daemon=True)
        thread.start()
        thread.join(_FAILED_PARTING_S if self._watch.has_failed else _PARTING_S)

    def _raise(self, call: Call, exc: Exception) -> NoReturn:
        """The group's failure in place of the library's exception, where that is one."""
        self._watch.fail_call(call, exc)
        self._watch.end(call)
        if (failure := self._watch.failure) is not None:
            raise failure from exc
        if self._is_stream_ordered or not isinstance(exc, RuntimeError):
            raise exc
        raise self._group.error(
            DeviceError, f"{call.op} of {self._group.name} failed: {exc}"
        ) from exc

    def _wait_in_slices(self, work: Any) -> None:
        # The library's wait cannot be interrupted, and one that times out harms nothing as long as
        # the work goes on.
        while True:
            try:
                work.wait(_SLICE)
                return
            except RuntimeError:
                if work.is_completed():  # maybe only since the slice was over
                    work.wait()
                    return
            self._watch.check()

    def _park(self, action: Callable[[], Any]) -> None:
        parked = _Parked(action)
        while not parked.is_over.wait(_SLICE.total_seconds()):
            self._watch.check()
        parked.wait()
