"""Memory bandwidth of a device, measured in a short-lived process: measuring opens a context."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dougong.errors import DeviceError, DougongError, PluginError
from dougong.platforms import Handover, LoadedPlatform, check_runtime, hand_over, join_parent
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child

_TIMEOUT_S = 120.0


def ask_bandwidth(loaded: LoadedPlatform, index: int) -> float:
    """Bytes per second of device ``index``, read and write together.

    Raises:
        DeviceError: The device failed.
        PluginError: The platform's runtime did.
    """
    question = {"handover": asdict(hand_over(loaded)), "device_index": index}
    wheel = loaded.selection.row.wheel
    try:
        answer = ask_child(__name__, question, _TIMEOUT_S)
    except ChildFailed as failed:
        raise PluginError(
            f"{wheel}: memory bandwidth of device {index} could not be measured: {failed.reason}"
        ) from failed
    if answer["device_error"]:
        raise DeviceError(answer["device_error"], device_index=index)
    if answer["failure"]:
        raise PluginError(
            f"{wheel}: memory bandwidth of device {index} could not be measured: "
            f"{answer['failure']}",
            plugin=loaded.selection.row.name,
        )
    return float(answer["bytes_per_second"])


def _answer(question: Any) -> object:
    answer: dict[str, Any] = {"device_error": "", "failure": ""}
    try:
        loaded = join_parent(Handover.from_json(question["handover"]))
        runtime = check_runtime(loaded.platform, loaded.selection.row)
        from dougong.reference.bandwidth import measure_bandwidth

        measured = measure_bandwidth(runtime, question["device_index"])
    except DeviceError as error:
        return answer | {"device_error": str(error)}
    except DougongError as error:
        return answer | {"failure": str(error)}
    except Exception as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
        return answer | {"failure": f"{type(exc).__name__}: {exc}"}
    return answer | {"bytes_per_second": measured}


if __name__ == "__main__":
    answer_parent(_answer)
