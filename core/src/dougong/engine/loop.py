"""The engine's own loop: commands in, steps, events out; for a thread or a process."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import suppress

from dougong.engine.adapter_reading import answer_about_lora, found_or_raise, start_reading
from dougong.engine.commands import (
    Abort,
    Add,
    Answer,
    Ask,
    Command,
    Died,
    Event,
    LoadLoRA,
    LoRARead,
    Stop,
    UnloadLoRA,
)
from dougong.engine.core import EngineCore
from dougong.errors import DougongError, PluginError
from dougong.messages import FinishReason, Request, RequestDelta


class EngineLoop:
    """Drives one engine until it is told to stop, or fails.

    Commands are taken between steps; without requests it waits for one and uses no processor.

    Args:
        core: The engine; shut down when the loop ends.
        inbox: Where commands arrive.
        emit: Called with every event, in this thread.
    """

    def __init__(
        self, core: EngineCore, inbox: queue.SimpleQueue[Command], emit: Callable[[Event], None]
    ) -> None:
        self._core = core
        self._inbox = inbox
        self._emit = emit
        self._is_stopped = False

    def run(self) -> None:
        """Loop until `Stop`, or until the engine fails: its last event is then `Died`."""
        try:
            while not self._is_stopped:
                self._take_commands()
                deltas = self._core.step()
                if deltas:
                    self._emit(deltas)
        except BaseException as exc:  # noqa: BLE001 - whatever ends the engine is told
            self._emit(Died(exc))
            with suppress(Exception, SystemExit):  # the failure itself is what must be seen
                self._core.shutdown()
        else:
            self._core.shutdown()

    def _take_commands(self) -> None:
        """All that wait; where there is nothing else to do, at least one."""
        try:
            while not self._is_stopped:
                self._obey(self._inbox.get(block=not self._core.has_requests()))
        except queue.Empty:
            return

    def _obey(self, command: Command) -> None:
        match command:
            case Add(requests):
                refused = [delta for request in requests for delta in self._try_add(request)]
                if refused:
                    self._emit(refused)
            case Abort(request_ids):
                self._core.abort(request_ids)
            case Ask(ticket, what):
                self._answer(ticket, what)
            case LoadLoRA() | LoRARead() | UnloadLoRA():
                self._change_adapters(command)
            case Stop():
                self._is_stopped = True

    def _change_adapters(self, command: LoadLoRA | LoRARead | UnloadLoRA) -> None:
        core, name = self._core, command.name
        match command:
            case LoadLoRA():
                try:
                    core.check_can_load_lora(name)
                except DougongError as exc:
                    self._emit(Answer(command.ticket, None, exc))
                else:
                    start_reading(command, self._inbox.put)
            case LoRARead():
                answer = answer_about_lora(
                    command.ticket, lambda: core.load_lora(name, found_or_raise(command))
                )
                self._emit(answer)
            case UnloadLoRA():
                self._emit(answer_about_lora(command.ticket, lambda: core.unload_lora(name)))

    def _try_add(self, request: Request) -> list[RequestDelta]:
        try:
            self._core.add(request)
        except DougongError as exc:
            return [
                RequestDelta(
                    request.request_id,
                    [],
                    finish_reason=FinishReason.ABORT,
                    error=str(exc),
                    error_field=getattr(exc, "field", None),
                )
            ]
        return []

    def _answer(self, ticket: int, what: str) -> None:
        if what == "health":
            self._core.health()
            self._emit(Answer(ticket, None))
            return
        try:
            answer = Answer(ticket, self._core.stats())
        except Exception as exc:  # noqa: BLE001 - a vendor's collect(); requests go on
            answer = Answer(ticket, None, _no_stats(exc))
        self._emit(answer)


def _no_stats(cause: Exception) -> DougongError:
    if isinstance(cause, DougongError):
        return cause
    error = PluginError(
        f"A worker's collect() failed: {type(cause).__name__}: {cause}. Requests go on; report "
        "this to the plugin's vendor."
    )
    error.__cause__ = cause
    return error
