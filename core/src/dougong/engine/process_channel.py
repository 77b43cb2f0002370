"""An engine in a process of its own, and the quick discovery of its death."""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import queue
import threading
from collections.abc import Callable
from dataclasses import replace

from dougong.config import EngineArgs
from dougong.engine.channel import CLOSED, STOP_TIMEOUT_S, EngineChannel, engine_dead
from dougong.engine.commands import Command, Died, Event, Ready, Stop
from dougong.engine.preparation import Preparation, warn_of_late_faults
from dougong.engine.process_end import how_it_ended
from dougong.engine.process_main import EngineProcessArgs, run_engine_process
from dougong.engine.start_report import StartReport, fault_sentences
from dougong.engine.wire import pack_command, unpack_event
from dougong.errors import EngineDeadError
from dougong.platforms import hand_over

_KILL_TIMEOUT_S = 2.0


class ProcessChannel(EngineChannel):
    """An engine in a spawned process. This process opens no device and loads no weight.

    A pipe joins the two and nothing else holds its ends, so each sees the other's death at once.

    Args:
        args: The user's wishes.
        on_event: Called with every event after the start, in a thread of this class.
        prepared: The platform and the model's files.

    Raises:
        DougongError: The start failed, here or there.
    """

    def __init__(
        self, args: EngineArgs, on_event: Callable[[Event], None], prepared: Preparation
    ) -> None:
        self._loaded = prepared.loaded
        self._on_event = on_event
        self._dead: BaseException | None = None
        self._is_closing = False
        self._send_lock = threading.Lock()
        self._first: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._started = False
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        told = EngineProcessArgs(
            args=args,
            files=prepared.files,
            handover=hand_over(self._loaded),
            log_level=_log_level(),
            reasons=self._loaded.selection.reasons,
            is_explicit=self._loaded.selection.is_explicit,
            capabilities=prepared.planned.inputs.capabilities,
            conformance=prepared.conformance,
            seconds=prepared.seconds,
        )
        self.process = context.Process(
            target=run_engine_process, args=(theirs, told), name="dougong-engine", daemon=True
        )
        self.process.start()
        theirs.close()
        atexit.register(self.close)  # before multiprocessing waits for it: it heeds no SIGTERM
        self._reader = threading.Thread(
            target=self._read_events, name="dougong-events", daemon=True
        )
        self._reader.start()
        self._wait_until_ready()

    def send(self, command: Command) -> None:
        """See `EngineChannel.send`."""
        if self._dead is not None:
            raise engine_dead(self._dead)
        try:
            self._write(command)
        except OSError as exc:
            self._reader.join(_KILL_TIMEOUT_S)  # it knows more of the cause than a broken pipe
            cause = self._dead or exc
            raise engine_dead(cause) from cause

    def close(self) -> None:
        """See `EngineChannel.close`."""
        if self._is_closing:
            return
        self._is_closing = True
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):
            self._write(Stop())
        self.process.join(STOP_TIMEOUT_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._reader.join(_KILL_TIMEOUT_S)
        self._connection.close()

    def _write(self, command: Command) -> None:
        with self._send_lock:
            self._connection.send_bytes(pack_command(command))

    def _wait_until_ready(self) -> None:
        try:
            first = self._first.get()
        except BaseException:  # Ctrl-C while loading
            self.process.kill()
            raise
        if isinstance(first, Ready):
            self.report = self._with_the_whole_table(first.report)
            return
        assert isinstance(first, Died), "nothing else comes before Ready"
        self.close()
        raise first.error

    def _with_the_whole_table(self, report: StartReport) -> StartReport:
        """The report with what became of the plugins that only this process had tried."""
        table = self._loaded.table
        warn_of_late_faults(self._loaded)
        return replace(
            report,
            plugins=tuple(row.sentence() for row in table.rows),
            plugin_faults=fault_sentences(table),
        )

    def _read_events(self) -> None:
        try:
            while True:
                self._pass_on(self._understood(self._connection.recv_bytes()))
        except (EOFError, OSError):
            self._note_end()

    def _understood(self, data: bytes) -> Event:
        """The event; one that cannot be read is the end, and the engine is told."""
        try:
            return unpack_event(data)
        except Exception as exc:  # noqa: BLE001 - whoever waits learns of it
            with contextlib.suppress(OSError):
                self._write(Stop())  # it would compute for nobody
            return Died(_unreadable(exc))

    def _pass_on(self, event: Event) -> None:
        if self._dead is not None:
            return  # nothing counts after the end
        if isinstance(event, Died):
            self._dead = event.error
        if self._started:
            self._on_event(event)
        else:
            self._started = True
            self._first.put(event)

    def _note_end(self) -> None:
        self.process.join(_KILL_TIMEOUT_S)
        if self._dead is None:
            error = EngineDeadError(self._how_it_ended())
            if self._is_closing:
                self._dead = error
            else:
                self._pass_on(Died(error))

    def _how_it_ended(self) -> str:
        if self._is_closing:
            return CLOSED
        return how_it_ended(self.process.pid, self.process.exitcode)


def _unreadable(cause: Exception) -> EngineDeadError:
    error = EngineDeadError(
        f"The engine's process sent what cannot be read here ({type(cause).__name__}: {cause}), so "
        "it was ended. Start a new one."
    )
    error.__cause__ = cause
    return error


def _log_level() -> str | None:
    logger = logging.getLogger("dougong")
    return logging.getLevelName(logger.level) if logger.handlers and logger.level else None
