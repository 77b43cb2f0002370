"""Workers that lose their way, and plugins that answer the planner otherwise than they act."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import (
    with_backends,
    with_platform,
    with_worker,
)
from dougong_conformance.session import PluginUnderTest


@mutant(
    "W01",
    "a step before anything is loaded gives an empty answer",
    killer="worker.refuses_calls_out_of_order",
)
def w01(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def execute_model(self: Any, step: Any, grammar: Any = None) -> Any:
            from dougong.contracts import ModelRunnerOutput

            if str(self.state) != "running":
                return ModelRunnerOutput(step.step_id, [], [])
            return good.execute_model(self, step, grammar)

        return {"execute_model": execute_model}

    return with_worker(plugin, members)


def _sleeping(plugin: PluginUnderTest, *, gives_back: bool, restores: bool) -> PluginUnderTest:
    """A worker that sleeps: its weights go to the host and come back."""

    def members(_good: Any) -> dict[str, Any]:
        def sleep(self: Any, level: int = 1) -> None:
            from dougong.contracts import WorkerState

            if gives_back:
                for parameter in self._loaded.model.parameters():
                    parameter.data = parameter.data.cpu()
            self.state = WorkerState.ASLEEP

        def wake(self: Any) -> None:
            from dougong.contracts import WorkerState

            for parameter in self._loaded.model.parameters():
                parameter.data = parameter.data.to(self.device)
                if not restores:
                    parameter.data = parameter.data * 0.5
            self.state = WorkerState.RUNNING

        return {"sleep": sleep, "wake": wake}

    return with_worker(plugin, members)


@mutant("W02", "weights come back at half their size after a sleep", killer="worker.wake_restores")
def w02(plugin: PluginUnderTest) -> PluginUnderTest:
    return _sleeping(plugin, gives_back=False, restores=False)


@mutant("W03", "a worker is of no use after one bad step", killer="worker.survives_a_bad_step")
def w03(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def submit(self: Any, step: Any, intermediate: Any = None) -> Any:
            if self.__dict__.get("_is_spoilt"):
                raise RuntimeError("the queue is closed")
            try:
                return good.submit(self, step, intermediate)
            except Exception:
                self.__dict__["_is_spoilt"] = True
                raise

        return {"submit": submit}

    return with_worker(plugin, members)


@mutant(
    "W04",
    "what is available is a share of the total, whatever others took",
    killer="worker.counts_foreign_memory",
)
def w04(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(_good: Any) -> dict[str, Any]:
        def determine_available_memory(self: Any) -> int:
            platform = self.context.platform
            info = platform.runtime.memory_info(self.context.device_index)
            return int(info.total_bytes * 0.4)

        return {"determine_available_memory": determine_available_memory}

    return with_worker(plugin, members)


@mutant("W05", "a second shutdown raises", killer="worker.life_cycle")
def w05(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def shutdown(self: Any) -> None:
            if self.__dict__.pop("_was_shut_down", False):
                raise RuntimeError("the context is gone")
            self.__dict__["_was_shut_down"] = True
            good.shutdown(self)

        return {"shutdown": shutdown}

    return with_worker(plugin, members)


@mutant("W06", "sleep gives no memory back", killer="worker.sleep_frees")
def w06(plugin: PluginUnderTest) -> PluginUnderTest:
    return _sleeping(plugin, gives_back=False, restores=True)


@mutant(
    "W08",
    "an error of a step is swallowed, and the step never has a result",
    killer="worker.errors_are_classified",
)
def w08(plugin: PluginUnderTest) -> PluginUnderTest:
    class Lost:
        def __init__(self, step_id: int) -> None:
            self.step_id = step_id

        def result(self, timeout_s: float | None = None) -> Any:
            from dougong.contracts import ModelRunnerOutput

            return ModelRunnerOutput(self.step_id, [], [])

    def members(good: Any) -> dict[str, Any]:
        def submit(self: Any, step: Any, intermediate: Any = None) -> Any:
            try:
                return good.submit(self, step, intermediate)
            except Exception:  # noqa: BLE001 - the defect
                return Lost(step.step_id)

        def sample(self: Any, handle: Any, grammar: Any = None) -> Any:
            return handle if isinstance(handle, Lost) else good.sample(self, handle, grammar)

        return {"submit": submit, "sample": sample}

    return with_worker(plugin, members)


@mutant(
    "N31",
    "errors leave the worker as the vendor raised them",
    killer="worker.errors_are_classified",
)
def n31(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(_good: Any) -> dict[str, Any]:
        def _classified(self: Any, step_id: int | None = None) -> Any:
            from contextlib import nullcontext

            return nullcontext()

        return {"_classified": _classified}

    return with_worker(plugin, members)


@mutant(
    "N32",
    "after it ran out of memory once the worker refuses every step",
    killer="worker.works_after_running_out_of_memory",
)
def n32(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def submit(self: Any, step: Any, intermediate: Any = None) -> Any:
            from dougong.contracts import DeviceError

            if self.__dict__.get("_is_spoilt"):
                raise RuntimeError("the queue is closed")
            try:
                return good.submit(self, step, intermediate)
            except DeviceError:
                self.__dict__["_is_spoilt"] = True
                raise

        return {"submit": submit}

    return with_worker(plugin, members)


@mutant("N33", "the worker runs on device 0, whichever is its own", killer="worker.uses_its_device")
def n33(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def init(self: Any, context: Any) -> None:
            good.__init__(self, replace(context, device_index=0))

        return {"__init__": init}

    return with_worker(plugin, members)


@mutant("N34", "ops are bound as the plan does not say", killer="worker.obeys_the_plan")
def n34(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def load_model(self: Any, plan: Any) -> Any:
            from dougong.contracts import OpPiece
            from dougong.contracts.rank_plan import NATIVE

            native = tuple(replace(one, pieces=(OpPiece(NATIVE),)) for one in plan.ops)
            return good.load_model(self, replace(plan, ops=native))

        return {"load_model": load_model}

    return with_worker(plugin, members)


@mutant("N35", "loading tells of the plan, not of what was bound", killer="worker.obeys_the_plan")
def n35(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def load_model(self: Any, plan: Any) -> Any:
            from dougong.contracts.rank_plan import NATIVE

            report = good.load_model(self, plan)
            for op in self._loaded.model.modules():
                if getattr(op, "key", "") == "rms_norm":
                    op.bind(NATIVE, op.forward_native)
            return report

        return {"load_model": load_model}

    return with_worker(plugin, members)


@mutant("N36", "loading tells of a backend that computes nothing", killer="worker.obeys_the_plan")
def n36(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def load_model(self: Any, plan: Any) -> Any:
            report = good.load_model(self, plan)
            return replace(report, attention_backends={"mutant/flash": 2})

        return {"load_model": load_model}

    return with_worker(plugin, members)


@mutant(
    "N37",
    "the KV layout is another one when the model is loaded than when it was planned",
    killer="worker.layout_is_as_planned",
)
def n37(plugin: PluginUnderTest) -> PluginUnderTest:
    turns = itertools.count()

    def members(good: Any) -> dict[str, Any]:
        def kv_layout(self: Any, spec: Any) -> Any:
            layout = good.kv_layout(self, spec)
            return replace(layout, name=f"{layout.name} {next(turns)}")

        return {"kv_layout": kv_layout}

    return with_backends(plugin, members)


@mutant(
    "N38",
    "a state is skipped: the worker says that it runs before it was warmed up",
    killer="worker.life_cycle",
)
def n38(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def initialize_kv_cache(self: Any, config: Any) -> None:
            from dougong.contracts import WorkerState

            good.initialize_kv_cache(self, config)
            self.state = WorkerState.RUNNING

        def warm_up(self: Any) -> None:
            """Nothing is left to do, it thinks."""

        return {"initialize_kv_cache": initialize_kv_cache, "warm_up": warm_up}

    return with_worker(plugin, members)


@mutant(
    "N39",
    "a backend says yes to whatever it is asked for",
    killer="worker.supported_requests_can_be_made",
)
def n39(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def supports(self: Any, request: Any) -> Any:
            from dougong.contracts import Support

            return Support.yes()

        def make_impl(self: Any, request: Any, scale: float) -> Any:
            if not good.supports(self, request):
                raise ValueError("no kernel was compiled for this")
            return good.make_impl(self, request, scale)

        return {"supports": supports, "make_impl": make_impl}

    return with_backends(plugin, members)


@mutant(
    "N40",
    "the worker takes steps in any order",
    killer="worker.survives_a_bad_step",
)
def n40(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def submit(self: Any, step: Any, intermediate: Any = None) -> Any:
            return good.submit(self, replace(step, step_id=self._next_step_id), intermediate)

        return {"submit": submit}

    return with_worker(plugin, members)


@mutant(
    "N41",
    "the preferred backend is another one each time it is asked for",
    killer="worker.layout_is_as_planned",
)
def n41(plugin: PluginUnderTest) -> PluginUnderTest:
    turns = itertools.count()

    def members(good: Any) -> dict[str, Any]:
        def get_attn_backends(self: Any) -> Any:
            found = list(good.get_attn_backends(self).items())
            return dict(found if next(turns) < 2 else found[1:])

        return {"get_attn_backends": get_attn_backends}

    return with_platform(plugin, members)


@mutant(
    "W09",
    "masks belong to the requests in the order in which these came",
    killer="worker.grammar_masks",
)
def w09(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def sample(self: Any, handle: Any, grammar: Any = None) -> Any:
            if grammar is not None:
                grammar = replace(grammar, req_ids=sorted(grammar.req_ids))
            return good.sample(self, handle, grammar)

        return {"sample": sample}

    return with_worker(plugin, members)
