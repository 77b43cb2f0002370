"""What a device measures, read where reading it does no harm."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dougong.contracts.capabilities import Capabilities, DeviceFacts
from dougong.errors import DeviceError, PluginError
from dougong.platforms.loading import LoadedPlatform
from dougong.platforms.probing import caught
from dougong.platforms.process_check import Handover, hand_over, join_parent
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child

_TIMEOUT_S = 120.0


def read_capabilities(loaded: LoadedPlatform, device_index: int) -> Capabilities:
    """Claims and facts of one device, for planning.

    Facts are read in a short-lived child where the platform says that reading opens a context.

    Raises:
        DeviceError: The device does not answer.
        PluginError: A query raised or answered something else than it had promised.
    """
    facts = _read_facts(loaded, device_index)
    plugin = loaded.selection.row
    try:
        claims = loaded.platform.claims(facts.arch)
    except Exception as exc:
        reason = caught(exc).reason
        raise PluginError(f"{plugin.wheel}: claims({facts.arch!r}) raised {reason}") from exc
    return Capabilities(claims=claims, facts=facts)


def _read_facts(loaded: LoadedPlatform, device_index: int) -> DeviceFacts:
    row = loaded.selection.row
    if not loaded.platform.facts_open_context:
        try:
            return loaded.platform.facts(device_index)
        except DeviceError:
            raise
        except Exception as exc:
            reason = caught(exc).reason
            raise PluginError(f"{row.wheel}: facts({device_index}) raised {reason}") from exc
    question = {"handover": asdict(hand_over(loaded)), "device_index": device_index}
    try:
        answer = ask_child(__name__, question, _TIMEOUT_S)
    except ChildFailed as failed:
        raise PluginError(f"{row.wheel}: facts({device_index}): {failed.reason}") from failed
    if "device_error" in answer:
        raise DeviceError(answer["device_error"], device_index=device_index)
    return DeviceFacts(**answer)


def _answer(question: Any) -> object:
    loaded = join_parent(Handover.from_json(question["handover"]))
    try:
        return asdict(loaded.platform.facts(question["device_index"]))
    except DeviceError as error:
        return {"device_error": str(error)}


if __name__ == "__main__":
    answer_parent(_answer)
