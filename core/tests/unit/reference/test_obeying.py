"""The reference worker does what its plan says, uses all of it before the first request, and names
whatever fails then."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
import torch

from dougong.contracts import (
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionRequest,
    ImplementationError,
    KernelFault,
    KernelReport,
    KVCacheConfig,
    KVCacheSpec,
    KVLayout,
    OpPiece,
    OutOfDeviceMemory,
    PluginError,
    UnsupportedError,
    WorkerState,
)
from dougong.contracts.rank_plan import NATIVE
from dougong.ops import CustomOp, GateUpAct, GreedySample, Linear, TopKTopP, register_kernel
from dougong.reference import ReferenceAttentionBackend
from tests.support.reference_worker import (
    PlainPlatform,
    bring_up,
    go_on,
    make_worker,
    plan_for,
    start,
)
from tests.support.registrations import registrations
from tests.support.tiny_models import write_tiny_checkpoint

PROMPT = [5, 90, 17, 33, 200, 64, 3]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


class Counts:
    """Calls by implementation and token count."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def tokens_of(self, name: str) -> set[int]:
        return {tokens for one, tokens in self.seen if one == name}


def noting_kernel(counts: Counts, name: str, error: Exception | None = None) -> Any:
    """A kernel for ``linear`` that notes, then computes or raises."""

    @register_kernel("linear", name=name)
    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        counts.seen.append((name, x.shape[0]))
        if error is not None:
            raise error
        return torch.nn.functional.linear(x, weight, bias)

    return kernel


def test_each_kernel_of_the_plan_is_used_once_before_the_first_request(checkpoint: Path) -> None:
    counts = Counts()
    marked = registrations(noting_kernel(counts, "acme/few"), noting_kernel(counts, "acme/many"))
    worker = make_worker(checkpoint, registrations=marked)
    pieces = (OpPiece("acme/few", 4), OpPiece(NATIVE, 5), OpPiece("acme/many"))
    report = bring_up(worker, plan_for(worker, implementations={"linear": pieces}))
    assert report.implementations["linear"] == {"acme/few": 8, "native": 8, "acme/many": 8}
    assert counts.tokens_of("acme/few") == {3}
    assert counts.tokens_of("acme/many") == {6}
    counts.seen.clear()
    worker.execute_model(start(0, ("a", PROMPT, [0], 7)))
    worker.execute_model(go_on(1, a=1))
    assert counts.tokens_of("acme/many") == {7}
    assert counts.tokens_of("acme/few") == {1}


def test_a_kernel_that_raises_at_its_first_use_is_named(checkpoint: Path) -> None:
    marked = registrations(noting_kernel(Counts(), "acme/bad", ValueError("no tile of 6")))
    worker = make_worker(checkpoint, registrations=marked)
    pieces = (OpPiece(NATIVE, 5), OpPiece("acme/bad"))
    with pytest.raises(ImplementationError) as caught:
        bring_up(worker, plan_for(worker, implementations={"linear": pieces}))
    assert list(caught.value.failures) == ["acme/bad"]
    assert "no tile of 6" in caught.value.failures["acme/bad"]
    assert worker.state is WorkerState.CACHE_READY


def test_the_step_that_measures_memory_is_watched_too(checkpoint: Path) -> None:
    marked = registrations(noting_kernel(Counts(), "acme/bad", ValueError("no tile")))
    worker = make_worker(checkpoint, registrations=marked)
    worker.init_device()
    worker.load_model(plan_for(worker, implementations={"linear": "acme/bad"}))
    with pytest.raises(ImplementationError, match="acme/bad"):
        worker.determine_available_memory()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (torch.OutOfMemoryError("full"), OutOfDeviceMemory),
        (MemoryError("full"), OutOfDeviceMemory),  # the platform's own word for it
        (ZeroDivisionError(), ImplementationError),  # a kernel's fault, says the platform
    ],
)
def test_a_full_device_is_nobodys_failure_and_a_kernels_fault_is(
    checkpoint: Path, error: Exception, raised: type[Exception]
) -> None:
    marked = registrations(noting_kernel(Counts(), "acme/big", error))
    worker = make_worker(checkpoint, registrations=marked)
    with pytest.raises(raised) as caught:
        bring_up(worker, plan_for(worker, implementations={"linear": "acme/big"}))
    if isinstance(caught.value, OutOfDeviceMemory):
        assert (caught.value.device_index, caught.value.rank) == (0, 0)
    else:
        assert isinstance(caught.value.__cause__, KernelFault)


def test_after_warm_up_a_kernels_error_is_no_implementation_error(checkpoint: Path) -> None:
    @register_kernel("linear", name="acme/later")
    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if x.shape[0] == 7:
            raise ValueError("no tile of 7")
        return torch.nn.functional.linear(x, weight, bias)

    worker = make_worker(checkpoint, registrations=registrations(kernel))
    bring_up(worker, plan_for(worker, implementations={"linear": "acme/later"}))
    with pytest.raises(ValueError, match="no tile of 7"):
        worker.execute_model(start(0, ("a", PROMPT, [0], 7)))


def test_a_kernel_behind_a_fused_slot_is_used_before_the_first_request(checkpoint: Path) -> None:
    slots, inner = Counts(), Counts()

    @register_kernel("gate_up_act", name="acme/slot")
    class Slot:
        def __init__(self, op: GateUpAct) -> None:
            self._op = op

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            slots.seen.append(("acme/slot", x.shape[0]))
            hidden = torch.nn.functional.linear(x, self._op.weight, self._op.bias)
            gate, up = hidden.chunk(2, dim=-1)
            return torch.nn.functional.silu(gate) * up

    @register_kernel("silu_and_mul", name="acme/act")
    def act(x: torch.Tensor) -> torch.Tensor:
        inner.seen.append(("acme/act", x.shape[0]))
        gate, up = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    worker = make_worker(checkpoint, registrations=registrations(Slot, act))
    slot = (OpPiece("acme/slot", 8), OpPiece(NATIVE))
    names = {"gate_up_act": slot, "silu_and_mul": (OpPiece("acme/act"),)}
    bring_up(worker, plan_for(worker, implementations=names))
    assert (slots.tokens_of("acme/slot"), inner.tokens_of("acme/act")) == ({3}, {9})
    model = worker._model().model
    ops = {path: op for path, op in model.named_modules() if isinstance(op, CustomOp)}
    assert {op.kernel for op in ops.values() if op.key == "silu_and_mul"} == {act}


def test_the_samplers_kernels_are_used_in_warm_up_too(checkpoint: Path) -> None:
    @register_kernel("top_k_top_p", name="acme/cut")
    class Cut:
        def __init__(self, op: TopKTopP) -> None:
            pass

        def __call__(
            self, logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
        ) -> torch.Tensor:
            raise ValueError("no cut")

    worker = make_worker(checkpoint, registrations=registrations(Cut))
    with pytest.raises(ImplementationError, match="acme/cut"):
        bring_up(worker, plan_for(worker, implementations={"top_k_top_p": "acme/cut"}))


def test_model_and_sampler_are_made_of_the_out_of_tree_classes_that_the_plan_names(
    checkpoint: Path,
) -> None:
    counts = Counts()

    @CustomOp.register_oot("linear", name="acme/linear")
    class OwnLinear(Linear):
        def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
            counts.seen.append(("acme/linear", x.shape[0]))
            return self.forward_native(x)

    @CustomOp.register_oot("greedy_sample", name="acme/argmax")
    class OwnGreedy(GreedySample):
        def forward_oot(self, logits: torch.Tensor) -> torch.Tensor:
            counts.seen.append(("acme/argmax", logits.shape[0]))
            return self.forward_native(logits)

    marked = registrations(OwnLinear, OwnGreedy)
    plain, own = (make_worker(checkpoint, registrations=marked) for _ in range(2))
    bring_up(plain, plan_for(plain))
    assert not counts.seen
    names = {"linear": "acme/linear", "greedy_sample": "acme/argmax"}
    report = bring_up(own, plan_for(own, implementations=names))
    assert report.implementations["linear"] == {"acme/linear": 8}
    assert (counts.tokens_of("acme/linear"), counts.tokens_of("acme/argmax")) == ({3}, {2})
    step = start(0, ("a", PROMPT, [0], 7))
    assert own.execute_model(step) == plain.execute_model(step)


T = TypeVar("T")


class Broken(ReferenceAttentionBackend):
    """Fails where the test says."""

    name = "acme/broken"
    _at = "forward"
    _silent: ClassVar[dict[str, Exception | None]] = {}  # question -> error, or None for None

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        return self._answer("kv_layout", super().kv_layout(spec))

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        return self._answer("workspace_bytes", super().workspace_bytes(request, max_num_tokens))

    def _answer(self, question: str, answer: T) -> T:
        if question not in self._silent:
            return answer
        if (error := self._silent[question]) is not None:
            raise error
        return None  # type: ignore[return-value]  # the fault

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        return _broken(super().make_impl(request, scale), self._at)

    def make_builder(self, spec: Any, layout: Any, device: Any) -> AttentionMetadataBuilder:
        if self._at == "make_builder":
            raise ValueError("no tile")
        return _broken(super().make_builder(spec, layout, device), self._at)


def _broken(part: T, at: str) -> T:
    def fail(*args: object) -> None:
        raise ValueError("no tile")

    if hasattr(part, at):
        setattr(part, at, fail)
    return part


class BrokenPlatform(PlainPlatform):
    """With that backend too, which says in its report what it lacks."""

    def get_attn_backends(self) -> dict[str, str]:
        return super().get_attn_backends() | {"acme/broken": f"{__name__}:Broken"}

    def import_kernels(self) -> KernelReport:
        return KernelReport(loaded=("acme-kernels 2.1",), missing={"acme-more": "not installed"})


@pytest.mark.parametrize("at", ["forward", "write_kv", "build", "make_builder"])
def test_an_attention_backend_that_fails_at_its_first_use_is_named(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    monkeypatch.setattr(Broken, "_at", at)
    worker = make_worker(checkpoint, platform=BrokenPlatform())
    plan = plan_for(worker, platform=BrokenPlatform(), backend="acme/broken")
    with pytest.raises(ImplementationError) as caught:
        bring_up(worker, plan)
    assert caught.value.failures == {"acme/broken": f"{at}() raised ValueError: no tile"}


@pytest.mark.parametrize(
    ("prefill", "decode"), [("acme/broken", "reference/torch"), ("reference/torch", "acme/broken")]
)
def test_of_a_pair_both_are_used_in_warm_up(checkpoint: Path, prefill: str, decode: str) -> None:
    worker = make_worker(checkpoint, platform=BrokenPlatform())
    plan = plan_for(worker, platform=BrokenPlatform(), backend=prefill, decode_backend=decode)
    with pytest.raises(ImplementationError) as caught:
        bring_up(worker, plan)
    assert list(caught.value.failures) == ["acme/broken"]


@pytest.mark.parametrize("question", ["kv_layout", "workspace_bytes"])
@pytest.mark.parametrize(
    ("error", "told"),
    [(None, r"answers None to {}\(.*which is no"), (OSError("no table"), "asked {}.*no table")],
)
@pytest.mark.parametrize("decode", [None, "reference/torch"])
def test_a_backend_that_fails_to_answer_in_the_rank_is_its_plugins_fault(
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    error: Exception | None,
    told: str,
    decode: str | None,
) -> None:
    worker = make_worker(checkpoint, platform=BrokenPlatform())
    plan = plan_for(worker, platform=BrokenPlatform(), backend="acme/broken", decode_backend=decode)
    monkeypatch.setattr(Broken, "_silent", {question: error})
    worker.init_device()
    told = "attention backend 'acme/broken' of platform 'cpu' .*" + told.format(question)

    def ask() -> None:
        worker.load_model(plan)
        worker.attention_workspace_bytes(100)

    with pytest.raises(PluginError, match=told) as caught:
        ask()
    assert caught.value.plugin == "cpu"


def test_what_the_platform_found_goes_with_the_report(checkpoint: Path) -> None:
    worker = make_worker(checkpoint, platform=BrokenPlatform())
    found = worker.init_device()
    assert found.missing == {"acme-more": "not installed"}
    assert worker.load_model(plan_for(worker)).kernels == found


def test_a_platform_that_reports_nothing_is_at_fault(checkpoint: Path) -> None:
    class Silent(PlainPlatform):
        def import_kernels(self) -> KernelReport:
            return None  # type: ignore[return-value]  # the fault

    with pytest.raises(PluginError, match="None to import_kernels"):
        make_worker(checkpoint, platform=Silent()).init_device()


def test_a_cache_sized_with_another_block_size_is_refused(checkpoint: Path) -> None:
    worker, planted = make_worker(checkpoint), make_worker(checkpoint)
    for one, block_size in ((worker, 16), (planted, 32)):
        one.init_device()
        one.load_model(plan_for(one, block_size=block_size))
    groups = tuple(group for group, _ in planted.get_kv_cache_groups())
    with pytest.raises(UnsupportedError, match=r"block_size 32, and .* take 16"):
        worker.initialize_kv_cache(KVCacheConfig(16, groups))
    assert worker.state is WorkerState.MODEL_LOADED
