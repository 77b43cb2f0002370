"""Commands about adapters: files are read beside the steps, slots are filled between two."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dougong.contracts import LoRAWeights
from dougong.engine.commands import Answer, LoadLoRA, LoRARead
from dougong.errors import DeviceError, DougongError, PluginError, RequestError
from dougong.lora import read_adapter
from dougong.messages import LoRARef


def start_reading(command: LoadLoRA, done: Callable[[LoRARead], None]) -> None:
    """Read an adapter's files in a thread of its own.

    Args:
        command: Which.
        done: Called in that thread, with what came of it.
    """

    def read() -> None:
        done(LoRARead(command.ticket, command.name, _try_read(command.path)))

    threading.Thread(target=read, name="dougong-adapter", daemon=True).start()


def answer_about_lora(ticket: int, change: Callable[[], LoRARef]) -> Answer:
    """Load or unload, and say what came of it; the engine goes on, unless a device failed.

    Raises:
        DeviceError: One did.
    """
    try:
        return Answer(ticket, None, lora=change())
    except DeviceError:
        raise
    except DougongError as exc:
        return Answer(ticket, None, exc)
    except Exception as exc:  # noqa: BLE001 - a vendor's; the slot is nobody's
        error = PluginError(
            f"A worker's set_lora() failed: {type(exc).__name__}: {exc}. The adapter is not "
            "loaded and requests go on; report this to the plugin's vendor."
        )
        error.__cause__ = exc
        return Answer(ticket, None, error)


def found_or_raise(read: LoRARead) -> LoRAWeights:
    """What was read.

    Raises:
        DougongError: Why nothing was.
    """
    if isinstance(read.found, DougongError):
        raise read.found
    return read.found


def _try_read(path: str) -> LoRAWeights | DougongError:
    try:
        return read_adapter(path)
    except DougongError as exc:
        return exc
    except Exception as exc:  # noqa: BLE001 - files of a client's choice; the reason is the answer
        return RequestError(
            f"The adapter in {path} cannot be read: {type(exc).__name__}: {exc}.", field="lora_path"
        )
