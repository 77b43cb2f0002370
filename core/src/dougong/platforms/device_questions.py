"""Questions about one device to a loaded platform, in a short-lived child: asking opens a context.

The child joins the parent's choice of platform, so that both ask the same plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dougong.errors import DeviceError, DougongError, PluginError
from dougong.platforms.loading import LoadedPlatform
from dougong.platforms.probing import caught
from dougong.platforms.process_check import Handover, hand_over, join_parent
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child


def ask_about_device(
    loaded: LoadedPlatform, device_index: int, *, module: str, what: str, timeout_s: float
) -> Any:
    """What the child's `answer_about_device` gave.

    Args:
        loaded: The platform.
        device_index: The device.
        module: Has a ``__main__`` part that calls `answer_about_device`.
        what: Was asked, for messages.
        timeout_s: The child is ended afterwards.

    Raises:
        DeviceError: The device did not answer.
        PluginError: The platform failed, or the child ended without an answer.
    """
    row = loaded.selection.row
    question = {"handover": asdict(hand_over(loaded)), "device_index": device_index}
    try:
        answer = ask_child(module, question, timeout_s)
    except ChildFailed as failed:
        raise PluginError(f"{row.wheel}: {what}: {failed.reason}", plugin=row.name) from failed
    if "device_error" in answer:
        raise DeviceError(answer["device_error"], device_index=device_index)
    if "refused" in answer:
        raise PluginError(answer["refused"], plugin=row.name)
    if "raised" in answer:
        raise PluginError(f"{row.wheel}: {what} raised {answer['raised']}", plugin=row.name)
    return answer["found"]


def answer_about_device(answer: Callable[[LoadedPlatform, int], object]) -> None:
    """The child's side of `ask_about_device`.

    Args:
        answer: Takes the platform and the device's index; what it returns is plain data.
    """
    answer_parent(lambda question: _answered(answer, question))


def _answered(answer: Callable[[LoadedPlatform, int], object], question: Any) -> object:
    try:
        loaded = join_parent(Handover.from_json(question["handover"]))
        return {"found": answer(loaded, question["device_index"])}
    except DeviceError as error:
        return {"device_error": str(error)}
    except DougongError as error:
        return {"refused": str(error)}
    except Exception as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
        return {"raised": caught(exc).reason}
