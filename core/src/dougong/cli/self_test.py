"""Ops and a collective on each device, in short-lived children: a device may hang or crash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dougong.cli.collective_check import check_collective
from dougong.cli.op_check import CHECKED_OPS, check_op
from dougong.contracts.support import KernelReport
from dougong.platforms import Handover, LoadedPlatform, hand_over, import_kernels, join_parent
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child

OP_TESTS: Mapping[str, str] = {key: f"{key} against float64 on the host" for key in CHECKED_OPS}
COLLECTIVE_TEST = "all_reduce"
_TIMEOUT_S = 120.0
_TOLERANCE = 2e-2  # of the largest value: a sanity check for any dtype, no measure of precision


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """What one test found on one device.

    Attributes:
        device_index: Within the platform.
        test: What was tried.
        has_passed: Whether it worked.
        detail: What ran and the error of its result, or what went wrong.
    """

    device_index: int
    test: str
    has_passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class SelfTests:
    """What the chosen devices did.

    Attributes:
        results: In order of devices.
        loaded: Kernel libraries that are usable.
        missing: Library → why it is not.
    """

    results: tuple[SelfTestResult, ...] = ()
    loaded: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


def run_self_tests(loaded: LoadedPlatform) -> SelfTests:
    """Every test on every selected device; a child that dies fails its own tests."""
    ops = _ask_ops(loaded)
    collectives = (_check_collective(loaded, index) for index in loaded.selection.device_indices)
    results = sorted((*ops.results, *collectives), key=lambda result: result.device_index)
    return SelfTests(tuple(results), ops.loaded, ops.missing)


def _ask_ops(loaded: LoadedPlatform) -> SelfTests:
    try:
        answer = ask_child(__name__, asdict(hand_over(loaded)), _TIMEOUT_S)
    except ChildFailed as failed:
        detail = f"the process that tested it failed: {failed.reason}"
        indices = loaded.selection.device_indices
        return SelfTests(tuple(r for index in indices for r in _all_failed(index, detail)))
    results = tuple(SelfTestResult(**result) for result in answer["results"])
    return SelfTests(results, tuple(answer["loaded"]), answer["missing"])


def _check_collective(loaded: LoadedPlatform, index: int) -> SelfTestResult:
    try:
        error, detail = check_collective(loaded, index)
    except ChildFailed as failed:
        return SelfTestResult(index, COLLECTIVE_TEST, False, failed.reason)
    return _measured(index, COLLECTIVE_TEST, error, detail)


def _answer(handover: Any) -> object:
    return asdict(check_ops(join_parent(Handover.from_json(handover))))


def check_ops(loaded: LoadedPlatform) -> SelfTests:
    """The ops on every selected device, in this process."""
    results: list[SelfTestResult] = []
    libraries: list[str] = []
    missing: dict[str, str] = {}
    for index in loaded.selection.device_indices:
        try:
            kernels = import_kernels(loaded, index)
        except Exception as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
            results += _all_failed(index, f"{type(exc).__name__}: {exc}")
            continue
        libraries += [name for name in kernels.loaded if name not in libraries]
        missing |= kernels.missing
        results += _check_ops(loaded, index, kernels)
    return SelfTests(tuple(results), tuple(libraries), missing)


def _check_ops(
    loaded: LoadedPlatform, index: int, kernels: KernelReport
) -> Iterator[SelfTestResult]:
    device = loaded.platform.runtime.torch_device(index)
    for key, test in OP_TESTS.items():
        try:
            check = check_op(loaded, index, kernels, device, key)
        except Exception as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
            yield SelfTestResult(index, test, False, f"{type(exc).__name__}: {exc}")
        else:
            yield _measured(index, test, check.error, check.detail)


def _measured(index: int, test: str, error: float, detail: str) -> SelfTestResult:
    return SelfTestResult(index, test, error <= _TOLERANCE, f"relative error {error:.1e}, {detail}")


def _all_failed(index: int, detail: str) -> list[SelfTestResult]:
    return [SelfTestResult(index, test, False, detail) for test in OP_TESTS.values()]


if __name__ == "__main__":
    answer_parent(_answer)
