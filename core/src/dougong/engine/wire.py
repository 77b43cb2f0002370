"""Commands and events as bytes.

What a step produced goes as MessagePack, which is quick to write and read; everything else, which
is rare, as pickle: both ends are one program on one machine, joined by a pipe of their own.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import replace
from typing import cast

import msgspec

from dougong.engine.commands import Answer, Command, Died, Event
from dougong.errors import DougongError, PluginError
from dougong.messages import RequestDelta

_DELTAS, _ANSWER, _OTHER = b"d", b"a", b"o"
_TICKET_BYTES = 8
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[RequestDelta])


def pack_event(event: Event) -> bytes:
    """Bytes of an event."""
    if isinstance(event, list):
        return _DELTAS + _encoder.encode(event)
    if isinstance(event, Answer):
        return _ANSWER + event.ticket.to_bytes(_TICKET_BYTES, "big") + _pack_answer(event)
    if isinstance(event, Died):
        event = Died(_portable(event.error))
    return _OTHER + pickle.dumps(event)


def unpack_event(data: bytes) -> Event:
    """The event that `pack_event` wrote."""
    kind, body = data[:1], memoryview(data)[1:]
    if kind == _DELTAS:
        return _decoder.decode(body)
    if kind == _ANSWER:
        ticket = int.from_bytes(body[:_TICKET_BYTES], "big")
        return _unpack_answer(ticket, body[_TICKET_BYTES:])
    return cast(Event, pickle.loads(body))


def pack_command(command: Command) -> bytes:
    """Bytes of a command."""
    return pickle.dumps(command)


def unpack_command(data: bytes) -> Command:
    """The command that `pack_command` wrote."""
    return cast(Command, pickle.loads(data))


def _pack_answer(answer: Answer) -> bytes:
    """The answer, or that it cannot be sent: a worker tells of itself what its vendor likes."""
    if answer.error is not None:
        answer = replace(answer, error=_portable(answer.error))
    try:
        return pickle.dumps(answer)
    except Exception as exc:  # noqa: BLE001 - a vendor's object; the reason is the answer
        return pickle.dumps(Answer(answer.ticket, None, _not_plain(exc)))


def _unpack_answer(ticket: int, body: memoryview) -> Answer:
    try:
        return cast(Answer, pickle.loads(body))
    except Exception as exc:  # noqa: BLE001 - as above
        return Answer(ticket, None, _not_plain(exc))


def _not_plain(cause: Exception) -> PluginError:
    return PluginError(
        f"The engine's answer cannot cross processes: {type(cause).__name__}: {cause}. What a "
        "worker's collect() returns must be plain data; report this to the plugin's vendor."
    )


def _portable(error: BaseException) -> DougongError:
    """An error that means the same in another process, with its traceback as a note."""
    trace = traceback.TracebackException.from_exception(error)  # knows errors without a text
    portable = _try_copy(error)
    if portable is None:
        portable = DougongError(f"{type(error).__name__}: {trace}")
        for note in getattr(error, "__notes__", ()):
            portable.add_note(note)
    lines = "".join(trace.format()).rstrip()
    portable.add_note(f"In the engine's process:\n{lines}")
    return portable


def _try_copy(error: BaseException) -> DougongError | None:
    """The error as it will arrive; ``None`` where it would not.

    Only Dougong's own classes are sure to be found by the other process, and even they may hold a
    vendor's object.
    """
    if not isinstance(error, DougongError) or not type(error).__module__.startswith("dougong."):
        return None
    try:
        return cast(DougongError, pickle.loads(pickle.dumps(error)))
    except Exception:  # noqa: BLE001 - its text goes instead
        return None
