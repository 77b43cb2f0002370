"""The plugin's graph runner, on work of two tensors and on the device's memory."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from dougong.contracts import GraphRunner

from dougong_conformance.drivers.memory import settle
from dougong_conformance.drivers.performance import waited_share
from dougong_conformance.drivers.streams import slow_work
from dougong_conformance.local import as_raised
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


def new_runner(session: Session) -> GraphRunner | None:
    """Made as the core makes it; ``None``: the platform names none or claims no capture."""
    answer = session.plugin.descriptor.probe()
    arch = next((one.arch for one in getattr(answer, "devices", ())), "")
    target = session.platform.get_graph_runner_cls()
    if target is None or not session.platform.claims(arch).graph_capture:
        return None
    module, _, name = target.partition(":")
    runner: GraphRunner = getattr(importlib.import_module(module), name)(session.device)
    return runner


class _Product:
    """``relu(x @ w) + 1`` with a buffer for ``x``, captured.

    Args:
        session: The plugin.
        runner: Captures it.
        key: Of the graph.
        weight: ``[inner, columns]``.
        num_rows: Of the buffer.
    """

    def __init__(
        self, session: Session, runner: GraphRunner, key: str, weight: torch.Tensor, num_rows: int
    ) -> None:
        device = session.device
        self._runner, self._key = runner, key
        self.weight = weight.to(device)
        self.x = torch.zeros(num_rows, weight.shape[0], device=device)
        self._compute()  # once before the capture, as the core does
        session.runtime.synchronize()
        with runner.capture(key):
            self.out = self._compute()

    def _compute(self) -> torch.Tensor:
        return torch.relu(self.x @ self.weight) + 1

    def replay(self, x: torch.Tensor) -> None:
        """With new values in the buffer."""
        self.x.copy_(x.to(self.x.device))
        self._runner.replay(self._key)


@procedure("graph.replays")
def replays(
    session: Session, weight: torch.Tensor, inputs: list[torch.Tensor]
) -> dict[str, Any] | None:
    """Outputs of one graph, replayed with each input; and where each lies."""
    runner = new_runner(session)
    if runner is None:
        return None
    with session.runtime.inference_mode():
        product = _Product(session, runner, "a", weight, inputs[0].shape[0])
        where, outputs = product.out.data_ptr(), []
        for x in inputs:
            product.replay(x)
            outputs.append(product.out.cpu())
        found = {"outputs": outputs, "moved": product.out.data_ptr() != where}
    _release(session, runner, "a")
    return found


@procedure("graph.two")
def two(
    session: Session, weight: torch.Tensor, first: torch.Tensor, second: torch.Tensor
) -> dict[str, Any] | None:
    """Two graphs of different sizes, replayed in turn."""
    runner = new_runner(session)
    if runner is None:
        return None
    with session.runtime.inference_mode():
        a = _Product(session, runner, "a", weight, first.shape[0])
        b = _Product(session, runner, "b", weight, second.shape[0])
        a.replay(first)
        alone = a.out.cpu()
        b.replay(second)
        found = {"a": alone, "a after b": a.out.cpu(), "b": b.out.cpu()}
    _release(session, runner, "a", "b")
    return found


@procedure("graph.memory")
def memory(session: Session, count: int, num_bytes: int) -> dict[str, Any] | None:
    """Memory around captures that are released one after the other, and told while they live."""
    runner = new_runner(session)
    if runner is None:
        return None
    settle(session)
    runtime, index = session.runtime, session.device_index
    before = runtime.memory_info(index).free_bytes
    told: list[int] = []
    with runtime.inference_mode():
        source = torch.ones(num_bytes // 4, device=session.device)
        source + 1  # once before the capture, as the core does
        settle(session)
        for number in range(count):
            with runner.capture(("m", number)):
                held = source + 1
            told.append(int(runner.memory_bytes()))
            del held
            runtime.synchronize()
            runner.release(("m", number))
    after_release = int(runner.memory_bytes())
    del source, runner
    settle(session)
    after = runtime.memory_info(index).free_bytes
    return {"lost": before - after, "told": told, "after_release": after_release}


@procedure("graph.failures")
def failures(session: Session) -> dict[str, Any] | None:
    """Blocks that cannot become a graph: what each raises, and whether a graph is left of it."""
    runner = new_runner(session)
    if runner is None:
        return None
    x = torch.ones(4, device=session.device)
    found: dict[str, Any] = {}

    def own() -> None:
        raise ValueError("raised by the block")

    def waits() -> None:
        (x + 1).sum().item()

    for name, inside in (("the block raises", own), ("the block reads a number", waits)):
        raised = left = None
        try:
            with runner.capture(name):
                inside()
        except Exception as exc:  # noqa: BLE001 - the judge looks at it
            raised = as_raised(exc)
        try:
            runner.replay(name)
            left = "it can be replayed"
        except Exception:  # noqa: BLE001 - as it should be
            left = ""
        session.runtime.synchronize()
        found[name] = {"raised": raised, "left": left}
    with runner.capture("again"):
        y = x * 3
    runner.replay("again")
    found["goes on"] = y.cpu()
    _release(session, runner, "again")
    return found


@procedure("graph.padding")
def padding(
    session: Session, weight: torch.Tensor, x: torch.Tensor, num_rows: int
) -> torch.Tensor | None:
    """A graph of more rows than there are, the rest of its buffer NaN."""
    runner = new_runner(session)
    if runner is None:
        return None
    with session.runtime.inference_mode():
        product = _Product(session, runner, "p", weight, num_rows)
        full = torch.full((num_rows, x.shape[1]), torch.nan)
        full[: x.shape[0]] = x
        product.replay(full)
        found = product.out[: x.shape[0]].cpu()
    _release(session, runner, "p")
    return found


@procedure("graph.replay_waits")
def replay_waits(
    session: Session, weight: torch.Tensor, x: torch.Tensor
) -> dict[str, float] | None:
    """`waited_share` of a replay."""
    runner = new_runner(session)
    if runner is None:
        return None
    with session.runtime.inference_mode():
        product = _Product(session, runner, "w", weight, x.shape[0])
        product.replay(x)

        def again() -> None:
            runner.prepare_replay([])
            runner.replay("w")

        share = waited_share(session, slow_work(session), again)
    _release(session, runner, "w")
    return {"share": share}


def _release(session: Session, runner: GraphRunner, *keys: str) -> None:
    session.runtime.synchronize()
    for key in keys:
        runner.release(key)
