"""Asked in a short-lived child: how a plugin is found there. Imports neither torch nor the plugin.

The child forks once per question, so that each has a process that has imported nothing yet.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dougong.platforms import PluginRow, PluginTable, ProbeCache, Verdict, discover, select_platform
from dougong.platforms.loading import instantiate
from dougong.platforms.probing import caught

NEIGHBOUR = "conformance-neighbour"
_NEIGHBOUR_MODULE = """
from dougong.contracts import Available, DeviceInfo, PlatformPlugin
plugin = PlatformPlugin(
    name={name!r}, requires_contract=">=1.0,<2", platform="nobody:Nothing",
    probe=lambda: Available((DeviceInfo(index=0, name="next door", arch="other"),)),
)
"""
_IS_HARMLESS = ("/dev/null", "/dev/tty", "/dev/pts", "/dev/urandom", "/dev/random", "/dev/shm")
_UNKNOWN_ARCH = "no such family"


def main(name: str, variable: str, broken: Mapping[str, str], wanted: Sequence[str] = ()) -> None:
    """Answer questions about a plugin; one line of JSON.

    Args:
        name: As typed after ``--platform``.
        variable: Environment variable that masks devices; empty: none.
        broken: Variables under which its runtime cannot start; empty: it tells none.
        wanted: Names of the answers; empty: all.
    """
    answers: dict[str, Any] = {"found": in_fork(partial(_found, name))}
    questions: dict[str, Callable[[], dict[str, Any]]] = {
        "again": partial(_found, name),
        "unloadable": partial(_unloadable, name),
        "neighbour": partial(_beside_another, name),
    }
    if broken:
        questions["broken"] = partial(_broken, name, broken)
    for question, ask in questions.items():
        if not wanted or question in wanted:
            answers[question] = in_fork(ask)
    if variable and (not wanted or "masks" in wanted):
        for label, mask in masks(len(answers["found"].get("devices", ()))):
            asked = in_fork(partial(_masked, name, variable, mask))
            answers[f"mask {label}"] = {"mask": mask, **asked}
    if not wanted or "platform" in wanted:
        answers["platform"] = _platform_asked(name)
    print(json.dumps(answers))  # noqa: T201 - this is the answer


def _platform_asked(name: str) -> dict[str, Any]:
    """Without torch; where that does not go, with it."""
    found = in_fork(partial(_platform, name, blocks_torch=True))
    if "torch" not in found.get("error", ""):
        return found
    return {"imports_torch": True, **in_fork(partial(_platform, name, blocks_torch=False))}


def masks(count: int) -> Iterator[tuple[str, str | None]]:
    yield "unset", None
    yield "one", str(count - 1)
    if count > 1:
        yield "reordered", f"{count - 1},0"
    yield "empty", ""
    yield "out of range", str(count + 90)
    yield "no number", "no-such-device"


def in_fork(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An answer from a child of this process, with the time it took."""
    reader, writer = os.pipe()
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        answer: dict[str, Any] = {}
        try:
            answer = ask()
        except BaseException as exc:  # noqa: BLE001 - told to the parent, whatever it is
            answer = {"error": caught_safely(exc), "kinds": [k.__name__ for k in type(exc).__mro__]}
        with os.fdopen(writer, "w") as out:
            out.write(json.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as source:
        text = source.read()
    os.waitpid(child, 0)
    seconds = time.monotonic() - begin
    answer = json.loads(text) if text else {"error": "the process ended without an answer"}
    return {**answer, "seconds": seconds}


def caught_safely(exc: BaseException) -> str:
    """Kind and text; of an interrupt, too."""
    with suppress(KeyboardInterrupt):
        return caught(exc).reason
    return "KeyboardInterrupt"


def _row(name: str) -> tuple[PluginTable, PluginRow]:
    table = discover(probes=ProbeCache())
    rows = table.named(name)
    if len(rows) != 1:
        raise LookupError(f"{len(rows)} plugins are named {name!r}")
    return table, rows[0]


def _found(name: str) -> dict[str, Any]:
    before = set(sys.modules)
    _, row = _row(name)
    return {
        **_told(row),
        "auto_select": bool(row.plugin and row.plugin.auto_select),
        "requires_contract": row.plugin.requires_contract if row.plugin else "",
        "imports_torch": "torch" in sys.modules,
        "num_modules": len(set(sys.modules) - before),
        "threads": threading.active_count(),
        "device_files": _device_files(),
        "twice": _told(_row(name)[1])["devices"],
    }


def _told(row: PluginRow) -> dict[str, Any]:
    return {
        "verdict": row.verdict.value,
        "reason": row.reason,
        "devices": [asdict(device) for device in row.devices],
        "wheel": row.wheel,
    }


def _device_files() -> list[str]:
    """Files of ``/dev`` that this process holds open."""
    held = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            path = os.readlink(entry)
            if path.startswith("/dev/") and not path.startswith(_IS_HARMLESS):
                held.append(path)
    return held


def _masked(name: str, variable: str, mask: str | None) -> dict[str, Any]:
    if mask is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = mask
    table, row = _row(name)
    return {**_told(row), **_chosen(table, name)}


def _chosen(table: PluginTable, name: str | None) -> dict[str, Any]:
    """Which platform a start would take, or how it is refused."""
    try:
        selection = select_platform(table, name, tells_faults=False)
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        return {
            "refused": f"{type(exc).__name__}: {exc}",
            "kinds": [kind.__name__ for kind in type(exc).__mro__],
        }
    return {"chosen": selection.platform}


def _platform(name: str, *, blocks_torch: bool) -> dict[str, Any]:
    """The platform's class made and asked, without torch: no runtime of any vendor works then."""
    if blocks_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]  # makes its import fail
    _, row = _row(name)
    platform = instantiate(row)
    archs = dict.fromkeys((*(device.arch for device in row.devices), _UNKNOWN_ARCH))
    claims = {arch: platform.claims(arch) for arch in archs}
    for method in ("get_worker_cls", "get_device_communicator_cls", "get_graph_runner_cls"):
        getattr(platform, method)()
    platform.get_attn_backends()
    is_open = None
    if not blocks_torch and "torch" in sys.modules:
        module: Any = getattr(sys.modules["torch"], platform.device_type, None)
        is_open = bool(module.is_initialized()) if hasattr(module, "is_initialized") else None
    return {
        "generic": {arch: one.is_generic for arch, one in claims.items()},
        "archs": {arch: one.arch for arch, one in claims.items()},
        "dtypes": {arch: list(one.dtypes) for arch, one in claims.items()},
        "unknown": _UNKNOWN_ARCH,
        "device_files": _device_files(),
        "is_open": is_open,
        "threads": threading.active_count(),
    }


def _unloadable(name: str) -> dict[str, Any]:
    """The same where the module of the platform cannot be imported."""
    table, row = _row(name)
    module = (row.plugin.platform or "").partition(":")[0] if row.plugin else ""
    sys.modules[module] = None  # type: ignore[assignment]  # makes its import fail
    try:
        from dougong.platforms import load_platform

        load_platform(select_platform(table, name, tells_faults=False))
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        return {
            "refused": f"{type(exc).__name__}: {exc}",
            "kinds": [kind.__name__ for kind in type(exc).__mro__],
            "wheel": row.wheel,
            "trace": traceback.format_exc(),
        }
    return {"chosen": name, "wheel": row.wheel}


def _beside_another(name: str) -> dict[str, Any]:
    """The table with a second platform's wheel beside it."""
    with tempfile.TemporaryDirectory(prefix="dougong-neighbour-") as folder:
        module = NEIGHBOUR.replace("-", "_")
        text = _NEIGHBOUR_MODULE.format(name=NEIGHBOUR)
        Path(folder, f"{module}.py").write_text(text, encoding="utf-8")
        info = Path(folder, f"{module}-1.0.dist-info")
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {NEIGHBOUR}\nVersion: 1.0\n"
        (info / "METADATA").write_text(metadata, encoding="utf-8")
        entry = f"[dougong.platform_plugins]\n{NEIGHBOUR} = {module}:plugin\n"
        (info / "entry_points.txt").write_text(entry, encoding="utf-8")
        sys.path.insert(0, folder)
        own = discover(allowed=(name, NEIGHBOUR), probes=ProbeCache())
        rows = {row.name: _told(row) for row in own.rows if row.verdict is not Verdict.SHADOWED}
        return {
            "own": rows.get(name),
            "other": rows.get(NEIGHBOUR),
            "named": _chosen(own, name),
            "automatic": _chosen(own, None),
        }


def _broken(name: str, broken: Mapping[str, str]) -> dict[str, Any]:
    os.environ.update(broken)
    table, row = _row(name)
    return {**_told(row), "named": _chosen(table, name), "automatic": _chosen(table, None)}
