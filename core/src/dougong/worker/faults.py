"""A vendor's exception, raised again in the core's terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dougong.contracts import Fault, Platform
from dougong.errors import DeviceError, DougongError, OutOfDeviceMemory, PluginError


@contextmanager
def classified(
    platform: Platform, *, device_index: int, rank: int, step_id: int | None = None
) -> Iterator[None]:
    """Errors inside the block leave it classified.

    Raises:
        DeviceError: Of the kind `Platform.classify_error` named, with device, rank and step; one
            that came classified already gets what it lacks of these.
        Exception: Whatever the platform does not call a device's fault, unchanged.
    """
    try:
        yield
    except DeviceError as exc:
        if exc.rank is not None and (exc.step_id is not None or step_id is None):
            raise
        raise _placed(exc, device_index=device_index, rank=rank, step_id=step_id) from exc
    except DougongError:
        raise
    except Exception as exc:
        fault = _ask(platform, exc)
        if fault is None:
            raise
        device = device_index if fault.device_index is None else fault.device_index
        raise fault.kind(fault.message, device_index=device, rank=rank, step_id=step_id) from exc


def _ask(platform: Platform, exc: Exception) -> Fault | None:
    """What the platform calls an exception; running out of memory has its own name in torch."""
    try:
        fault = platform.classify_error(exc)
    except Exception as broken:  # noqa: BLE001 - a vendor's code; it is named in what is raised
        raise PluginError(
            f"platform {platform.name!r} failed to classify {type(exc).__name__}: {exc}; its "
            f"classify_error() raised {type(broken).__name__}: {broken}",
            plugin=platform.name,
        ) from exc
    if fault is None:
        return Fault(OutOfDeviceMemory, str(exc)) if _is_out_of_memory(exc) else None
    if not (isinstance(fault.kind, type) and issubclass(fault.kind, DeviceError)):
        raise PluginError(
            f"platform {platform.name!r} classified {type(exc).__name__} as {fault.kind!r}, which "
            "is no DeviceError",
            plugin=platform.name,
        ) from exc
    return fault


def _is_out_of_memory(exc: Exception) -> bool:
    """By name, so that a process that never imported torch need not."""
    return any(kind.__name__ == "OutOfMemoryError" for kind in type(exc).__mro__)


def _placed(exc: DeviceError, *, device_index: int, rank: int, step_id: int | None) -> DeviceError:
    """The same error with the places it lacks, in its message too."""
    has_places = (exc.device_index, exc.rank, exc.step_id) != (None, None, None)
    message = str(exc).rpartition(" (")[0] if has_places else str(exc)
    return type(exc)(
        message,
        device_index=device_index if exc.device_index is None else exc.device_index,
        rank=rank if exc.rank is None else exc.rank,
        step_id=step_id if exc.step_id is None else exc.step_id,
    )
