"""Which kernel libraries a platform can load on a device, asked where asking does no harm."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dougong.contracts.support import KernelReport
from dougong.errors import DeviceError, PluginError
from dougong.platforms.loading import LoadedPlatform, check_runtime
from dougong.platforms.probing import caught
from dougong.platforms.process_check import Handover, hand_over, join_parent
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child

_TIMEOUT_S = 300.0  # kernels may be built when they are first asked for


def read_kernels(loaded: LoadedPlatform, device_index: int) -> KernelReport:
    """What a worker on this device would find, for planning without one.

    Asked in a short-lived child where the platform says that reading facts opens a context, for
    loading kernels needs the device set.

    Raises:
        DeviceError: The device cannot be opened.
        PluginError: The platform raised, or answered no report.
    """
    if not loaded.platform.facts_open_context:
        return import_kernels(loaded, device_index)
    question = {"handover": asdict(hand_over(loaded)), "device_index": device_index}
    try:
        answer = ask_child(__name__, question, _TIMEOUT_S)
    except ChildFailed as failed:
        wheel = loaded.selection.row.wheel
        raise PluginError(f"{wheel}: import_kernels(): {failed.reason}") from failed
    if "device_error" in answer:
        raise DeviceError(answer["device_error"], device_index=device_index)
    if "plugin_error" in answer:
        raise PluginError(answer["plugin_error"], plugin=loaded.selection.row.name)
    return KernelReport(loaded=tuple(answer["loaded"]), missing=answer["missing"])


def import_kernels(loaded: LoadedPlatform, device_index: int) -> KernelReport:
    """Make a device current in this process and load its kernels, as a worker does.

    Raises:
        ContractError: The runtime does not fit the contract.
        DeviceError: The device cannot be opened.
        PluginError: The platform raised, or answered no report.
    """
    row = loaded.selection.row
    runtime = check_runtime(loaded.platform, row)
    try:
        runtime.set_device(device_index)
        report: object = loaded.platform.import_kernels()
    except DeviceError:
        raise
    except Exception as exc:
        reason = caught(exc).reason
        raise PluginError(
            f"{row.wheel}: loading kernels on device {device_index} raised {reason}",
            plugin=row.name,
        ) from exc
    if not isinstance(report, KernelReport):
        raise PluginError(
            f"{row.wheel}: import_kernels() answered {report!r}, not a KernelReport",
            plugin=row.name,
        )
    return report


def _answer(question: Any) -> object:
    loaded = join_parent(Handover.from_json(question["handover"]))
    try:
        return asdict(import_kernels(loaded, question["device_index"]))
    except DeviceError as error:
        return {"device_error": str(error)}
    except PluginError as error:
        return {"plugin_error": str(error)}


if __name__ == "__main__":
    answer_parent(_answer)
