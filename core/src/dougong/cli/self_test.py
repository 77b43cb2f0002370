"""One op and one collective on each device, in a short-lived child: a device may hang or crash."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dougong.contracts.communicator import Communicator, GroupKind, GroupOptions
from dougong.platforms import Handover, LoadedPlatform, hand_over, join_parent, load_class
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child

if TYPE_CHECKING:
    import torch

OP_TEST = "matmul and rms_norm against float64 on the host"
COLLECTIVE_TEST = "all_reduce in a group of one rank"
_TIMEOUT_S = 120.0
_SIZE = 64
_TOLERANCE = 2e-2  # of the largest value: a sanity check for any dtype, no measure of precision


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """What one test found on one device.

    Attributes:
        device_index: Within the platform.
        test: What was tried.
        has_passed: Whether it worked.
        detail: Error of the result where it passed, else what went wrong.
    """

    device_index: int
    test: str
    has_passed: bool
    detail: str


def run_self_tests(loaded: LoadedPlatform) -> tuple[SelfTestResult, ...]:
    """Both tests on every selected device, in order; a child that dies fails them all."""
    try:
        answers = ask_child(__name__, asdict(hand_over(loaded)), _TIMEOUT_S)
    except ChildFailed as failed:
        detail = f"the process that tested it failed: {failed.reason}"
        return tuple(
            SelfTestResult(index, test, False, detail)
            for index in loaded.selection.device_indices
            for test in (OP_TEST, COLLECTIVE_TEST)
        )
    return tuple(SelfTestResult(**answer) for answer in answers)


def _answer(handover: Any) -> object:
    loaded = join_parent(Handover.from_json(handover))
    return [asdict(result) for result in check_devices(loaded)]


def check_devices(loaded: LoadedPlatform) -> Iterator[SelfTestResult]:
    """Both tests on every selected device, in this process."""
    tests = {OP_TEST: _op_error, COLLECTIVE_TEST: _collective_error}
    for index in loaded.selection.device_indices:
        for name, measure in tests.items():
            yield _run(loaded, index, name, measure)


def _run(
    loaded: LoadedPlatform, index: int, name: str, measure: Callable[[LoadedPlatform, int], float]
) -> SelfTestResult:
    try:
        error = measure(loaded, index)
    except Exception as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
        return SelfTestResult(index, name, False, f"{type(exc).__name__}: {exc}")
    detail = f"relative error {error:.1e}"
    return SelfTestResult(index, name, error <= _TOLERANCE, detail)


def _open(loaded: LoadedPlatform, index: int) -> tuple[torch.device, torch.dtype]:
    """Make a device current; its torch device, and float32 or else its preferred dtype."""
    import torch

    runtime = loaded.platform.runtime
    runtime.set_device(index)
    loaded.platform.import_kernels()
    arch = next(device.arch for device in loaded.selection.devices if device.index == index)
    dtypes = loaded.platform.claims(arch).dtypes
    dtype = getattr(torch, "float32" if "float32" in dtypes else dtypes[0])
    assert isinstance(dtype, torch.dtype)
    return runtime.torch_device(index), dtype


def _op_error(loaded: LoadedPlatform, index: int) -> float:
    import torch

    device, dtype = _open(loaded, index)
    runtime = loaded.platform.runtime
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(_SIZE, _SIZE, generator=generator).to(dtype) for _ in range(2))
    with runtime.inference_mode():
        found = _rms_norm(left.to(device) @ right.to(device))
        runtime.synchronize()
    return _relative_error(found, _rms_norm(left.double() @ right.double()))


def _rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()


def _collective_error(loaded: LoadedPlatform, index: int) -> float:
    import torch

    device, dtype = _open(loaded, index)
    target, backend = loaded.platform.get_device_communicator_cls(), loaded.platform.dist_backend
    communicator_cls = load_class(target, Communicator, loaded.selection.row)
    given = torch.arange(1, _SIZE + 1).to(dtype)
    with tempfile.TemporaryDirectory(prefix="dougong-") as folder:
        options = GroupOptions(
            kind=GroupKind.TENSOR,
            ranks=(0,),
            rank=0,
            init_method=Path(folder, "rendezvous").as_uri(),
            options={"backend": backend} if backend else {},
        )
        communicator = communicator_cls(options, device)
        try:
            found = communicator.all_reduce(given.to(device))
            loaded.platform.runtime.synchronize()
        finally:
            communicator.destroy()
    return _relative_error(found, given.double())


def _relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
    return float(error.nan_to_num(nan=float("inf")))


if __name__ == "__main__":
    answer_parent(_answer)
