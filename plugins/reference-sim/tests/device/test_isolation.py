"""What only whole processes can show: masks, exclusive use, fork, death by a host access.

Two processes for all of it; they start at the same time, while other tests run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# The first process: a mask, an exclusive device, contexts, then children that misbehave.
OWNER = """
import ctypes, json, os, sys
import torch
from dougong_sim import device
from dougong_sim.device import control, find_library

facts = {}
device.load()
from dougong_sim.device import torch_module as sim

facts["mode"] = control.mode()
facts["uuids"] = [sim.get_device_properties(i).uuid for i in range(sim.device_count())]
torch.manual_seed(1)
facts["contexts before"] = [control.has_context(i) for i in range(sim.device_count())]
tensor = torch.ones(4, device="sim:1")
sim.synchronize(1)
facts["contexts after"] = [control.has_context(i) for i in range(sim.device_count())]


def child(act):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            act()
            answer = "no error"
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    answer = b"".join(iter(lambda: os.read(read, 4096), b"")).decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), answer


facts["fork"] = child(lambda: torch.ones(1, device="sim:1"))
facts["fork is told"] = child(lambda: print(1 / (not sim._is_in_bad_fork())))
facts["host access"] = child(lambda: ctypes.string_at(tensor.data_ptr(), 4))
print(json.dumps(facts), flush=True)
sys.stdin.readline()  # holds the device until it is told to end
"""

# The second process: wants what the first one holds, then what is free, then both.
RIVAL = """
import json, sys
import torch
from dougong_sim import device

sys.stdin.readline()  # the first one has its device
device.load()


def use(index):
    try:
        return torch.ones(1, device=f"sim:{index}").tolist()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


facts = {"held": use(0), "free": use(1)}
print(json.dumps(facts), flush=True)
sys.stdin.readline()  # the first one has ended
print(json.dumps({"released": use(0)}), flush=True)
"""


def _start(code: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    facts: dict[str, Any] = json.loads(process.stdout.readline())
    return facts


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Everything that both processes saw."""
    exclusive = {"SIM_EXCLUSIVE": "1", "SIM_STATE_DIR": str(tmp_path_factory.mktemp("locks"))}
    owner = _start(OWNER, SIM_VISIBLE_DEVICES="5,2,x,1", SIM_MODE="thread", **exclusive)
    rival = _start(RIVAL, SIM_VISIBLE_DEVICES="2,5", **exclusive)
    with owner, rival:
        try:
            seen = _hear(owner)
            _tell(rival)
            seen |= _hear(rival)
            _tell(owner)
            owner.wait(60)
            _tell(rival)
            seen |= _hear(rival)
            yield seen
        finally:
            owner.kill()
            rival.kill()


def test_only_visible_devices_exist_in_the_order_of_the_mask(facts: dict[str, Any]) -> None:
    assert facts["uuids"] == ["SIM-00000005", "SIM-00000002"]


def test_the_environment_reaches_the_device(facts: dict[str, Any]) -> None:
    assert facts["mode"] == ["thread", 0]


def test_a_context_is_made_by_use_and_only_where_it_is_used(facts: dict[str, Any]) -> None:
    assert facts["contexts before"] == [False, False]
    assert facts["contexts after"] == [False, True]


def test_a_fork_of_a_process_that_used_the_device_is_refused(facts: dict[str, Any]) -> None:
    code, answer = facts["fork"]
    assert code == 0
    assert answer.startswith("RuntimeError: sim: cannot use the device in a forked process")
    assert facts["fork is told"][1].startswith("ZeroDivisionError")


def test_host_code_that_touches_device_memory_dies(facts: dict[str, Any]) -> None:
    assert facts["host access"] == [-11, ""]


def test_an_exclusive_device_serves_one_process_until_that_ends(facts: dict[str, Any]) -> None:
    assert facts["held"].startswith("AcceleratorError: sim:0: device busy")
    assert facts["free"] == [1]
    assert facts["released"] == [1]
