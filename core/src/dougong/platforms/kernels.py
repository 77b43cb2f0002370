"""Which kernel libraries a platform can load on a device, asked where asking does no harm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from dougong.contracts.support import KernelReport
from dougong.errors import DeviceError, PluginError
from dougong.platforms.device_questions import answer_about_device, ask_about_device
from dougong.platforms.loading import LoadedPlatform, check_runtime
from dougong.platforms.probing import caught

_TIMEOUT_S = 300.0  # kernels may be built when they are first asked for


def read_kernels(loaded: LoadedPlatform, device_index: int) -> KernelReport:
    """What a worker on this device would find, for planning without one.

    Asked in a short-lived child where the platform says that reading facts opens a context, for
    loading kernels needs the device set.

    Raises:
        DeviceError: The device cannot be opened.
        PluginError: The platform raised, or answered no report, or one with empty names.
    """
    if not loaded.platform.facts_open_context:
        return import_kernels(loaded, device_index)
    answer = ask_about_device(
        loaded, device_index, module=__name__, what="import_kernels()", timeout_s=_TIMEOUT_S
    )
    return KernelReport(loaded=tuple(answer["loaded"]), missing=answer["missing"])


def import_kernels(loaded: LoadedPlatform, device_index: int) -> KernelReport:
    """Make a device current in this process and load its kernels, as a worker does.

    Raises:
        ContractError: The runtime does not fit the contract.
        DeviceError: The device cannot be opened.
        PluginError: The platform raised, or answered no report, or one with empty names.
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
    if problems := tuple(report_problems(report)):
        raise PluginError(
            f"{row.wheel}: import_kernels() answered with what names no library: "
            f"{'; '.join(problems)}. Report this to its vendor.",
            plugin=row.name,
        )
    return report


def report_problems(report: KernelReport) -> Iterator[str]:
    """What types promise and nobody has checked: libraries are compared by name.

    Whoever gets a report from a platform asks, a child's and a rank's alike.
    """
    if not isinstance(report.loaded, tuple):
        yield f"loaded is {report.loaded!r}, not a tuple"
    elif wrong := [one for one in report.loaded if not _is_text(one)]:
        yield f"loaded has {', '.join(map(repr, wrong))} in it, which is no name of a library"
    if not isinstance(report.missing, Mapping):
        yield f"missing is {report.missing!r}, not a mapping"
        return
    for name, reason in report.missing.items():
        if not _is_text(name):
            yield f"missing has {name!r} in it, which is no name of a library"
        elif not _is_text(reason):
            yield f"missing has {reason!r} for the reason of {name}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value == value.strip()


if __name__ == "__main__":
    answer_about_device(lambda loaded, device_index: asdict(import_kernels(loaded, device_index)))
