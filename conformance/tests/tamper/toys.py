"""A plugin that does what it is told, wicked things among them, and a suite of a few checks."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from dougong_conformance.runner.wheels import InstalledPlugin, installed_plugins

NAME = "toy"
DISTRIBUTION = "dougong-toy"

_DESCRIPTOR = """
from dougong.contracts import Available, DeviceInfo, PlatformPlugin
{head}

def probe():
    return Available((DeviceInfo(index=0, name="Toy 1", uuid="toy-0", arch="toy"),))


plugin = PlatformPlugin(
    name="toy",
    requires_contract=">=1.0,<2",
    probe=probe,
    platform="toy_platform:ToyPlatform",
)
"""

_PLATFORM = """
from typing import ClassVar

from dougong.cpu.platform import CpuPlatform
{head}

class ToyPlatform(CpuPlatform):
    name: ClassVar[str] = "toy"

    def claims(self, arch):
        import dataclasses

        return dataclasses.replace(super().claims(arch), dtypes={dtypes!r})
"""

_BREAKING = """

    @property
    def runtime(self):
        _check()
        return super().runtime
"""

_PROCEDURES = '''
import ctypes
import os
import signal
import sys
import time

from dougong_conformance.procedures import procedure


@procedure("toy.softmax")
def softmax(session, x):
    import torch

    return torch.softmax(x, -1)


@procedure("toy.misbehave")
def misbehave(session, kind, path=""):
    """One wicked thing, by name; ``path``: a file that makes it happen only once."""
    if path:
        if os.path.exists(path):
            return kind
        open(path, "w").close()
    if kind == "exit":
        os._exit(0)
    if kind == "sys.exit":
        sys.exit(0)
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "abort":
        os.abort()
    if kind == "hang":
        time.sleep(600)
    if kind == "gil":
        ctypes.PyDLL(None).sleep(600)
    if kind == "flood":
        for _ in range(400):
            os.write(1, b"x" * (1 << 20))
    if kind == "chatter":
        os.write(1, b"{\\"to\\": 1, \\"value\\": 1}\\n")
        print("noise", flush=True)
        print("more noise", file=sys.stderr, flush=True)
    if kind == "forks":
        for _ in range(20):
            if os.fork() == 0:
                if os.fork() == 0:
                    os.setsid()
                time.sleep(600)
                os._exit(0)
        os._exit(3)
    if kind == "fork and return":
        if os.fork() == 0:
            return "from the copy"
    if kind == "forge":
        import socket
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket"):
                    os.write(int(name), b"\\xff" * 4096)
            except OSError:
                pass
    if kind == "raise":
        raise RuntimeError("as told")
    if kind == "break device":
        session.kept["is_broken"] = True
        open(os.environ["TOY_BROKEN"], "w").close()
        raise RuntimeError("the device fell off the bus")
    return kind


@procedure("toy.coin")
def coin(session):
    """Another answer at every call."""
    session.kept["coin"] = session.kept.get("coin", 0) + 1
    return session.kept["coin"]


@procedure("toy.environment")
def environment(session):
    return dict(os.environ)


@procedure("toy.pytest")
def pytest_is_patched(session):
    import pytest

    return pytest.raises(ZeroDivisionError) is not None
'''

_CHECKS = """
import torch

from dougong_conformance.check import check


@check("ops.softmax", per_dtype=True)
def softmax(subject, judge, dtype):
    x = torch.linspace(-4, 4, 64).reshape(4, 16).to(getattr(torch, dtype))
    found = subject.call("toy.softmax", x=x)
    expected = torch.softmax(x.double(), -1)
    judge.at_most("softmax", float((found.double() - expected).abs().max()), 0.02)


@check("ops.coin")
def coin(subject, judge):
    judge.require(subject.call("toy.coin") % 2 == 1, "the coin shows tails")


@check("discovery.quiet")
def quiet(subject, judge):
    judge.require(subject.call("toy.misbehave", kind="nothing") == "nothing", "it answers")


@check("worker.after")
def after(subject, judge):
    judge.require(subject.call("toy.misbehave", kind="nothing") == "nothing", "it answers")


@check("worker.fresh")
def fresh(subject, judge):
    other = subject.fresh({"TOY_COLOUR": "green"})
    judge.require(other.call("toy.environment").get("TOY_COLOUR") == "green", "it is passed on")
    judge.require("TOY_COLOUR" not in subject.call("toy.environment"), "to that one only")


@check("communicator.ranks")
def ranks(subject, judge):
    group = subject.ranks(2)
    answers = group.call_all("toy.environment", [{}, {}])
    judge.require(all(isinstance(one, dict) for one in answers), f"ranks answer: {answers}")
"""

_ROW = """
[[requirement]]
id = "{id}"
title = "{id}"
text = "As the check of this toy says."
"""


def wicked_check(kind: str, *, number: int = 0) -> str:
    """A check whose call does one wicked thing."""
    return f"""

@check("streams.wicked{number}")
def wicked{number}(subject, judge):
    judge.require(subject.call("toy.misbehave", kind={kind!r}) == {kind!r}, "it answers")
"""


def write_suite(
    folder: Path, kinds: Sequence[str] = (), *, ids: Sequence[str] | None = None
) -> str:
    """Write an extension with the toy's checks and one wicked check per kind."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = ("discovery.quiet", "ops.softmax", "worker.after")
    wanted = [*(plain if ids is None else ids), *(f"streams.wicked{n}" for n in range(len(kinds)))]
    checks = _CHECKS + "".join(wicked_check(kind, number=n) for n, kind in enumerate(kinds))
    (folder / "conformance_extension_checks.py").write_text(checks, encoding="utf-8")
    (folder / "conformance_extension_procedures.py").write_text(_PROCEDURES, encoding="utf-8")
    rows = "".join(_ROW.format(id=one) for one in wanted)
    (folder / "requirements.toml").write_text(rows, encoding="utf-8")
    return str(folder)


def write_plugin(
    folder: Path,
    *,
    descriptor: str = "",
    platform: str = "",
    dtypes: Sequence[str] = ("float32",),
    entry_points: str = "",
    files: dict[str, str] | None = None,
    breaks: bool = False,
) -> InstalledPlugin:
    """Write what an installer would leave of the toy's wheel; returns it as it is found.

    With ``breaks`` the runtime asks ``_check()`` of the platform's module whether it still works.
    """
    info = folder / "dougong_toy-1.0.dist-info"
    written = {
        "toy_plugin.py": _DESCRIPTOR.format(head=descriptor),
        "toy_platform.py": _PLATFORM.format(head=platform, dtypes=tuple(dtypes))
        + (_BREAKING if breaks else ""),
        f"{info.name}/METADATA": f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 1.0\n",
        f"{info.name}/INSTALLER": "pip\n",
        f"{info.name}/entry_points.txt": (
            f"[dougong.platform_plugins]\ntoy = toy_plugin:plugin\n{entry_points}"
        ),
        **(files or {}),
    }
    info.mkdir(parents=True)
    rows = []
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
        rows.append(f"{name},sha256={digest.decode().rstrip('=')},{len(text.encode())}")
    record = "\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n"
    (info / "RECORD").write_text(record, encoding="utf-8")
    (found,) = [one for one in installed_plugins(str(folder)) if one.name == NAME]
    return found
