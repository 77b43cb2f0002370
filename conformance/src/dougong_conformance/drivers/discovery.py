"""How the plugin is found: asked in children of its own, once per session."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from dougong.testing.queries import query_problems

from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_TIMEOUT_S = 60.0


@procedure("discovery.asked")
def asked(session: Session, wanted: list[str]) -> dict[str, Any]:
    """What children without torch were told; see `discovery_child.main`.

    Args:
        session: The plugin.
        wanted: Names of the answers. One child is asked for all of them, and they are kept for the
            other checks; a plugin that was put here for one check is asked for no more.
    """
    hints = conformance_module(session)
    broken = dict(getattr(hints, "BROKEN_ENVIRONMENT", {}))
    is_for_one_check = bool(session.plugin.import_path)
    return _ask(
        session, "discovery_child", _variable(session), broken, wanted if is_for_one_check else []
    )


@procedure("discovery.loaded")
def loaded(session: Session) -> dict[str, Any]:
    """What a child that loaded the plugin found.

    Returns:
        ``is_open``: a context was open before the device was set; ``fork`` and ``parent``: a
        computation in a fork and afterwards in its parent; ``masks``: label → count and uuids that
        the runtime gives.
    """
    return _ask(session, "discovery_fork", _variable(session))


@procedure("discovery.query_problems")
def problems(session: Session) -> list[str]:
    """What is wrong with the platform's questions, one sentence each."""
    archs = sorted({str(device["arch"]) for device in _devices(session)})
    return query_problems(session.platform, session.device_index, archs)


@procedure("discovery.where")
def where(session: Session) -> dict[str, Any]:
    """Where this platform's tensors really are."""
    device = session.device
    tensor = torch.zeros(3, device=device)
    return {
        "platform": session.platform.name,
        "says": session.platform.device_type,
        "device": device.type,
        "tensor": tensor.device.type,
        "is_host": session.platform.device_type == "cpu",
    }


@procedure("discovery.bad_index")
def bad_index(session: Session) -> list[str]:
    """Classes of what a device that does not exist raises, as the core would see it."""
    from dougong.worker.faults import classified

    _ = session.device
    index = session.runtime.device_count() + 7
    try:
        with classified(session.platform, device_index=index, rank=0):
            session.runtime.set_device(index)
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        return [kind.__name__ for kind in type(exc).__mro__]
    finally:
        session.runtime.set_device(session.device_index)
    return []


def conformance_module(session: Session) -> ModuleType | None:
    """The optional module ``conformance`` beside the platform's: what a vendor offers the suite.

    ``BROKEN_ENVIRONMENT``: variables under which the runtime cannot start. ``KINDS``,
    ``inject(kind, device_index, **options)`` and ``clear(device_index)``: faults on demand.
    """
    for kind in type(session.platform).__mro__:
        package = kind.__module__.rpartition(".")[0]
        if not package or package.startswith(("dougong.", "dougong_conformance")):
            continue
        try:
            return importlib.import_module(f"{package}.conformance")
        except ModuleNotFoundError:
            continue
    return None


def _variable(session: Session) -> str:
    return session.platform.visible_devices_env


def _devices(session: Session) -> list[Mapping[str, Any]]:
    from dougong_conformance.drivers.facts import plain

    answer = session.plugin.descriptor.probe()
    return [plain(device) for device in getattr(answer, "devices", ())]


def _ask(session: Session, module: str, *arguments: Any) -> dict[str, Any]:
    """The answer of one of the children's programs, kept for the session."""
    kept = f"discovery.{module} {arguments}"
    if kept not in session.kept:
        path = [session.plugin.import_path, *sys.path]
        code = (
            f"import sys; sys.path[:] = {[one for one in path if one]!r}; "
            f"from dougong_conformance.drivers.{module} import main; "
            f"main({session.plugin.name!r}, *{arguments!r})"
        )
        environment = {**os.environ, "DOUGONG_PLUGINS": session.plugin.name}
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=environment,
            check=False,
        )
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            raise RuntimeError(f"the child ended with {done.returncode}:\n{done.stderr[-4000:]}")
        session.kept[kept] = json.loads(lines[-1])
    found: dict[str, Any] = session.kept[kept]
    return found
