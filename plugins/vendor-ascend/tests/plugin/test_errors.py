"""Real texts of the vendor's errors, and what they mean here."""

from __future__ import annotations

import pytest
from dougong.contracts import (
    CommunicatorTimeout,
    DeviceError,
    DeviceLost,
    KernelFault,
    OutOfDeviceMemory,
    PeerLost,
)

from dougong_ascend.errors import CODES, classify


class OutOfMemoryError(RuntimeError):
    """As torch's is named."""


def told(code: int, device: int = 3) -> RuntimeError:
    """As torch-npu words an error of the runtime."""
    return RuntimeError(
        "npuSynchronizeDevice:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:481 NPU function "
        f"error: aclrtSynchronizeDevice(), error code is {code}\n"
        f"[ERROR] 2026-09-01-10:00:00 (PID:71, Device:{device}, RankID:-1) ERR00100 PTA call acl "
        "api failed"
    )


@pytest.mark.parametrize(("code", "kind"), [(code, kind) for code, (kind, _) in CODES.items()])
def test_every_listed_code_is_read_with_its_device(code: int, kind: type[DeviceError]) -> None:
    fault = classify(told(code))
    assert fault is not None
    assert (fault.kind, fault.device_index) == (kind, 3)
    assert fault.message.startswith(str(code)) and "\n" not in fault.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [(107999, DeviceError), (507123, DeviceError), (561103, KernelFault), (161001, KernelFault)],
)
def test_unlisted_codes_are_the_device_s_or_the_op_s(code: int, kind: type[DeviceError]) -> None:
    fault = classify(told(code, device=0))
    assert fault is not None and fault.kind is kind and fault.device_index == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "NPU out of memory. Tried to allocate 8.00 GiB (NPU 0; 4.00 GiB total capacity; 0 "
            "bytes already allocated)",
            OutOfDeviceMemory,
        ),
        (
            "call aclnnQuantMatmulV4 failed, detail:EZ1001: scale dtype should be one of "
            "[UINT64, BFLOAT16, INT64, FLOAT], error code is 161002",
            KernelFault,
        ),
        (
            "aclnnFusedInferAttentionScoreV2 or aclnnFusedInferAttentionScoreV2GetWorkspaceSize "
            "not in libopapi.so, or libopapi.sonot found.",
            KernelFault,
        ),
        (
            "NPU function error: aclrtSynchronizeStream, error code is 507057\nEI0002: The wait "
            "execution of the Notify register times out.",
            CommunicatorTimeout,
        ),
        ("EI0006: Getting socket times out. Reason: Remote Rank did not send", CommunicatorTimeout),
        ("[Rank 0] Watchdog caught collective operation timeout: WorkHCCL", CommunicatorTimeout),
        ("HCCL function error: HcclAllReduce(...), error code is 9", CommunicatorTimeout),
        ("HCCL function error: HcclCommInitRootInfo, error code is 4", DeviceError),
        ("Invalid device ID. [ERROR] error code is 107001", DeviceError),
        ("NPU error, error code is 507899", DeviceError),
        (
            "no code here (PID:7, Device:1, RankID:0) ERR00007 PTA feature not supported",
            DeviceError,
        ),
    ],
)
def test_texts(text: str, kind: type[DeviceError]) -> None:
    fault = classify(RuntimeError(text))
    assert fault is not None and fault.kind is kind


def test_torch_s_own_error_of_memory_is_known_by_its_name() -> None:
    fault = classify(OutOfMemoryError("something else"))
    assert fault is not None and fault.kind is OutOfDeviceMemory


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)"),
        ValueError("507015"),
        KeyError("npu:0"),
        RuntimeError("error code is 12"),
    ],
)
def test_what_is_not_the_device_s_is_left_alone(error: Exception) -> None:
    assert classify(error) is None


def test_a_device_that_nobody_named_is_not_guessed() -> None:
    fault = classify(told(507015, device=-1))
    assert fault is not None and fault.device_index is None
    lost, peer = classify(told(507054)), classify(told(507057))
    assert lost is not None and lost.kind is DeviceLost
    assert peer is not None and peer.kind is PeerLost
