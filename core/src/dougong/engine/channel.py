"""An engine that runs beside its front end: in a thread, or (`process_channel`) in a process."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from dougong.config import EngineArgs
from dougong.engine.blame import told_blame
from dougong.engine.commands import Command, Died, Event, Ready, Stop
from dougong.engine.core import EngineCore
from dougong.engine.loop import EngineLoop
from dougong.engine.preparation import Preparation
from dougong.engine.start_report import StartReport
from dougong.errors import EngineDeadError

STOP_TIMEOUT_S = 10.0
CLOSED = "The engine was closed."


def engine_dead(cause: BaseException) -> EngineDeadError:
    """A new error for one call after the engine's death, with its cause chained already."""
    error = EngineDeadError(_death_message(cause))
    error.__cause__ = cause
    return error


def _death_message(cause: BaseException) -> str:
    if isinstance(cause, EngineDeadError):
        return str(cause)
    if isinstance(cause, KeyboardInterrupt):
        return (
            "The engine was interrupted in the middle of a step (KeyboardInterrupt), so it cannot "
            "go on. Start a new one."
        )
    return (
        f"The engine stopped and answers nothing more: {type(cause).__name__}: {cause}."
        f"{told_blame(cause)} Start a new one."
    )


class EngineChannel(ABC):
    """Carries commands to one engine and its events back.

    Attributes:
        report: Of the engine's start.
    """

    report: StartReport

    @abstractmethod
    def send(self, command: Command) -> None:
        """Hand a command over; never waits for the engine.

        Raises:
            EngineDeadError: The engine is gone.
        """

    @abstractmethod
    def close(self) -> None:
        """End the engine and wait until it has freed everything; callable twice."""


class ThreadChannel(EngineChannel):
    """An engine in a thread of this process.

    Args:
        args: The user's wishes.
        on_event: Called with every event after the start, in the engine's thread.
        prepared: The platform and the model's files.

    Raises:
        DougongError: The start failed.
    """

    def __init__(
        self, args: EngineArgs, on_event: Callable[[Event], None], prepared: Preparation
    ) -> None:
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._on_event = on_event
        self._dead: BaseException | None = None
        self._first: queue.SimpleQueue[Ready | Died] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(args, prepared), name="dougong-engine", daemon=True
        )
        self._thread.start()
        first = self._first.get()
        if isinstance(first, Died):
            self._thread.join()
            raise first.error
        self.report = first.report

    def send(self, command: Command) -> None:
        """See `EngineChannel.send`."""
        if self._dead is not None:
            raise engine_dead(self._dead)
        self._inbox.put(command)

    def close(self) -> None:
        """See `EngineChannel.close`."""
        self._inbox.put(Stop())
        self._thread.join(STOP_TIMEOUT_S)
        self._dead = self._dead or EngineDeadError(CLOSED)

    def _run(self, args: EngineArgs, prepared: Preparation) -> None:
        try:
            core = EngineCore.start(args, prepared)
        except BaseException as exc:  # noqa: BLE001 - raised again by whoever asked for the start
            self._first.put(Died(exc))
            return
        self._first.put(Ready(core.report))
        EngineLoop(core, self._inbox, self._emit).run()

    def _emit(self, event: Event) -> None:
        if isinstance(event, Died):
            self._dead = event.error
        self._on_event(event)
