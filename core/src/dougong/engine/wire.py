"""Commands and events as bytes.

What a step produced goes as MessagePack, which is quick to write and read; everything else, which
is rare, as pickle: both ends are one program on one machine, joined by a pipe of their own.
"""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import cast

import msgspec

from dougong.engine.commands import Command, Died, Event
from dougong.errors import DougongError
from dougong.messages import RequestDelta

_DELTAS, _OTHER = b"d", b"o"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[RequestDelta])


def pack_event(event: Event) -> bytes:
    """Bytes of an event."""
    if isinstance(event, list):
        return _DELTAS + _encoder.encode(event)
    if isinstance(event, Died):
        event = Died(_portable(event.error))
    return _OTHER + pickle.dumps(event)


def unpack_event(data: bytes) -> Event:
    """The event that `pack_event` wrote."""
    kind, body = data[:1], memoryview(data)[1:]
    return _decoder.decode(body) if kind == _DELTAS else cast(Event, pickle.loads(body))


def pack_command(command: Command) -> bytes:
    """Bytes of a command."""
    return pickle.dumps(command)


def unpack_command(data: bytes) -> Command:
    """The command that `pack_command` wrote."""
    return cast(Command, pickle.loads(data))


def _portable(error: BaseException) -> DougongError:
    """An error that means the same in another process, with its traceback as a note.

    One that is none of Dougong's own may name a class the other process cannot import.
    """
    trace = "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, DougongError):
        portable = copy.copy(error)
    else:
        portable = DougongError(f"{type(error).__name__}: {error}")
    portable.add_note(f"In the engine's process:\n{trace}")
    return portable
