"""Probes: asked once per process tree, answered with a type, remembered for the children."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dougong.contracts.plugin import Available, DeviceInfo, NotHere

_FIELD_TYPES: Mapping[str, type] = {"str": str, "int": int, "bool": bool}


@dataclass(frozen=True, slots=True)
class Broken:
    """Third-party code raised or answered something else than it had promised."""

    reason: str
    traceback: str = ""


Answer = Available | NotHere | Broken


def caught(exc: BaseException) -> Broken:
    """``exc`` as a reason and a traceback; call it inside the handler.

    ``SystemExit`` counts as a fault like any other: a plugin that leaves on import must not take
    the program with it. A real Ctrl-C is no plugin's fault and goes on.
    """
    if isinstance(exc, KeyboardInterrupt):
        raise exc
    text = " ".join(str(exc).split())
    reason = f"{type(exc).__name__}: {text}" if text else type(exc).__name__
    return Broken(reason, "".join(traceback.format_exception(exc)))


class ProbeCache:
    """Answers by plugin, so that nobody is asked twice in one process tree.

    A parent hands `to_json` to the processes it spawns; they call `from_json`. A forked child has
    the answers already. Thread-safe.
    """

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self._answers: dict[str, Answer] = dict(answers or {})
        self._lock = threading.Lock()

    def ask(self, key: str, probe: Callable[[], object], *, is_extension: bool = False) -> Answer:
        """The remembered answer under ``key``, or that of ``probe``, called now.

        Args:
            key: Identifies plugin, distribution and version.
            probe: The descriptor's.
            is_extension: It has no devices of its own, so `Available` may be without any.
        """
        with self._lock:
            if key not in self._answers:
                self._answers[key] = _run(probe, is_extension)
            return self._answers[key]

    def adopt(self, other: ProbeCache) -> None:
        """Take over what another process found; answers given here already stay."""
        with self._lock:
            self._answers = {**other._answers, **self._answers}

    def to_json(self) -> str:
        """All answers, for `from_json`."""
        with self._lock:
            return json.dumps(
                {
                    key: {"kind": type(answer).__name__, **asdict(answer)}
                    for key, answer in self._answers.items()
                }
            )

    @classmethod
    def from_json(cls, text: str) -> ProbeCache:
        """A cache with the answers of `to_json`."""
        return cls({key: _decode(value) for key, value in json.loads(text).items()})


# What a machine has does not depend on who asks, so engines of one process may share it.
PROCESS_PROBES = ProbeCache()


def _decode(value: dict[str, Any]) -> Answer:
    kind = value.pop("kind")
    if kind == "Available":
        return Available(tuple(DeviceInfo(**device) for device in value["devices"]))
    return NotHere(**value) if kind == "NotHere" else Broken(**value)


def _run(probe: Callable[[], object], is_extension: bool) -> Answer:
    try:
        answer = probe()
    except BaseException as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
        found = caught(exc)
        return Broken(f"its probe raised {found.reason}", found.traceback)
    match answer:
        case NotHere(reason=reason):
            if isinstance(reason, str) and reason.strip():
                return NotHere(" ".join(reason.split()))
            return Broken("its probe answered NotHere without a reason; say what was looked for")
        case Available(devices=devices):
            problem = _device_problem(devices, is_extension)
            return Broken(f"its probe answered {problem}") if problem else answer
    return Broken(
        f"its probe answered {answer!r} of type {type(answer).__name__}; "
        "it must return Available(devices) or NotHere(reason)"
    )


def _device_problem(devices: object, is_extension: bool) -> str | None:
    """What is wrong with the devices of an answer."""
    if not isinstance(devices, tuple) or not all(isinstance(d, DeviceInfo) for d in devices):
        return f"Available({devices!r}); it takes a tuple of DeviceInfo"
    if not devices and not is_extension:
        return "Available without a device; answer NotHere with the reason"
    for device in devices:
        for field in fields(device):
            value = getattr(device, field.name)
            if type(value) is not _FIELD_TYPES[str(field.type)]:
                return f"a device whose {field.name} is {value!r}; it must be of type {field.type}"
    indices = [device.index for device in devices]
    if indices != list(range(len(devices))):
        return f"devices with the indices {indices}; they count from 0, after the vendor's own mask"
    uuids = [device.uuid for device in devices if device.uuid]
    if len(set(uuids)) < len(uuids):
        return f"two devices with one uuid among {uuids}"
    return None
