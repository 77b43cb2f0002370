"""The engine's own process: joins its parent's choices and never outlives the parent."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from dougong.checkpoint import CheckpointFiles
from dougong.config import EngineArgs
from dougong.contracts import Capabilities
from dougong.engine.commands import Command, Died, Event, Ready, Stop
from dougong.engine.core import EngineCore
from dougong.engine.long_lived import keep_for_good
from dougong.engine.loop import EngineLoop
from dougong.engine.planning import plan_start
from dougong.engine.preparation import Preparation
from dougong.engine.start_times import timed
from dougong.engine.wire import pack_event, unpack_command
from dougong.log import configure_logging
from dougong.platforms import Conformance, Handover, join_parent

GRACE_S = 3.0  # to free devices after the parent is gone; then the process ends as it stands


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProcessArgs:
    """All that the parent tells; picklable.

    Attributes:
        args: The user's wishes.
        files: The model's files.
        handover: The parent's platform.
        log_level: Of the log on stderr; ``None``: no log.
        reasons: Why the parent chose this platform and these devices.
        is_explicit: Somebody named the platform.
        capabilities: Of the device, as the parent planned with them.
        conformance: What the parent found of the platform's.
        seconds: What the parent's part of the start took, by name.
    """

    args: EngineArgs
    files: CheckpointFiles
    handover: Handover
    log_level: str | None
    reasons: tuple[str, ...]
    is_explicit: bool
    capabilities: Capabilities
    conformance: Conformance
    seconds: Mapping[str, float]


def run_engine_process(connection: Connection, told: EngineProcessArgs) -> None:
    """Body of the process.

    Args:
        connection: To the parent, for commands and events; its end means the parent is gone.
        told: What to run.
    """
    _leave_signals_to_the_parent()
    if told.log_level is not None:
        configure_logging(told.log_level)
    inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(connection, inbox), daemon=True).start()

    def emit(event: Event) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the reader sees it too
            connection.send_bytes(pack_event(event))

    try:
        core = EngineCore.start(told.args, _prepared(told))
        keep_for_good()
        emit(Ready(core.report))
    except BaseException as exc:  # noqa: BLE001 - raised again in the parent
        emit(Died(exc))
        return
    EngineLoop(core, inbox, emit).run()


def _leave_signals_to_the_parent() -> None:
    """Live on when a terminal or a service manager signals the whole group.

    The parent gets the same signal and says `Stop` once its answers are whole. Handlers, not
    ``SIG_IGN``: a program that is started here does not inherit them.
    """
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda number, frame: None)


def _prepared(told: EngineProcessArgs) -> Preparation:
    """What the parent prepared, made again here: it holds objects of plugins."""
    seconds = dict(told.seconds)
    with timed(seconds, "process"):
        loaded = join_parent(told.handover)
        selection = replace(loaded.selection, reasons=told.reasons, is_explicit=told.is_explicit)
        loaded = replace(loaded, selection=selection)
        planned = plan_start(told.args, loaded, told.files, capabilities=told.capabilities)
    return Preparation(
        loaded=loaded,
        files=told.files,
        planned=planned,
        conformance=told.conformance,
        seconds=seconds,
    )


def _read_commands(connection: Connection, inbox: queue.SimpleQueue[Command]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(unpack_command(connection.recv_bytes()))
    inbox.put(Stop())
    time.sleep(GRACE_S)
    os._exit(1)  # the main thread is stuck in a load or a step that nobody waits for
