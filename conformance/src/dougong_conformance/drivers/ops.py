"""Ops of the catalogue: made with given sizes and weights, bound, called, handed over."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from dougong.contracts import OpAssignment, OpPiece
from dougong.contracts.rank_plan import NATIVE
from dougong.ops import CustomOp
from dougong.ops.binding import bind_ops
from dougong.ops.outline import named_ops
from torch import nn

from dougong_conformance.drivers.op_plan import choose
from dougong_conformance.drivers.placing import Placed, place, to_device
from dougong_conformance.drivers.tracing import CopyTrace
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("ops.choices")
def choices(session: Session, *, key: str, config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Implementations whose conditions such an op meets, and what a plan would bind.

    Returns:
        ``"holding"``: name → fewest and most tokens; ``"objections"``: name → why not;
        ``"pieces"``: ``[name, up_to]`` each, as planned.
    """
    with torch.device("meta"):
        op = made_op(session, key, config)
    choice = choose(session, op, dtype)
    return {
        "holding": {name: list(bounds) for name, bounds in choice.holding.items()},
        "objections": dict(choice.objections),
        "pieces": [[piece.implementation, piece.up_to] for piece in choice.pieces],
    }


@procedure("ops.accepted")
def accepted(
    session: Session, *, key: str, name: str, candidates: dict[str, list[Any]]
) -> dict[str, list[Any]]:
    """Which values of properties an implementation's conditions accept.

    Args:
        session: Of this process.
        key: The op.
        name: The implementation.
        candidates: Property → values to ask about; what is not among them is not answered.
    """
    found = session.registry.find(key, name)
    if found is None:
        raise KeyError(f"op {key} has no implementation {name}")
    return {
        prop: [value for value in candidates.get(prop, ()) if constraint.accepts(value)]
        for prop, constraint in found.candidate.when.properties
    }


@procedure("ops.run")
def run(
    session: Session,
    *,
    key: str,
    config: dict[str, Any],
    weights: dict[str, torch.Tensor],
    calls: list[list[Any]],
    dtype: str,
    implementation: str = "",
) -> dict[str, Any]:
    """Make one op, bind one implementation, call it.

    Args:
        session: Of this process.
        key: The op.
        config: Arguments of its class, dtypes by name.
        weights: Parameters by name.
        calls: Arguments of each call; tensors, plain values, or parts of wider tensors
            (`dougong_conformance.kit.place`).
        dtype: Compute dtype, for conditions.
        implementation: By name; ``"native"``: plain torch; empty: what a plan would bind.

    Returns:
        ``"names"`` of the arguments and per call ``"outputs"``, ``"devices"`` of them, ``"inputs"``
        as they were after the call (the whole base of a part), ``"mutates"``: arguments that were
        declared to be overwritten, and ``"copies"`` that were seen in every call but the first.
    """
    device = session.device
    with session.runtime.inference_mode():
        op = bound_op(session, key, config, weights, dtype, implementation)
        done = [
            _called(session, op, arguments, device, is_first=index == 0)
            for index, arguments in enumerate(calls)
        ]
    return {"names": list(op.arg_names()), "implementation": op.implementation, "calls": done}


@procedure("ops.times")
def times(
    session: Session,
    *,
    key: str,
    config: dict[str, Any],
    weights: dict[str, torch.Tensor],
    warm_up: list[list[Any]],
    calls: list[list[Any]],
    dtype: str,
) -> list[float]:
    """Seconds of each call of one op bound as planned, the device waited for."""
    device, found = session.device, []
    with session.runtime.inference_mode():
        op = bound_op(session, key, config, weights, dtype)
        for index, arguments in enumerate((*warm_up, *calls)):
            placed = [place(one, device) for one in arguments]
            given = [one.part if isinstance(one, Placed) else one for one in placed]
            session.runtime.synchronize()
            start = time.perf_counter()
            op(*given)
            session.runtime.synchronize()
            if index >= len(warm_up):
                found.append(time.perf_counter() - start)
    return found


@procedure("ops.run_tied")
def run_tied(
    session: Session,
    *,
    config: dict[str, Any],
    weight: torch.Tensor,
    ids: list[torch.Tensor],
    hidden: list[torch.Tensor],
    dtype: str,
) -> dict[str, list[torch.Tensor]]:
    """An embedding and the head that shares its table, bound as planned and called in turn.

    Returns:
        ``"rows"`` of the embedding per tensor of ids, ``"logits"`` per hidden one.
    """
    device, registry = session.device, session.registry
    with torch.device("meta"):
        outline = _tied(session, config)
    assignments = [
        OpAssignment(key=op.key, paths=(path,), pieces=choose(session, op, dtype).pieces)
        for path, op in named_ops(outline)
    ]
    with session.runtime.inference_mode():
        with registry.overriding(assignments), torch.device(device):
            model = _tied(session, config)
        model["embedding"].weight.copy_(weight)
        bind_ops(model, registry, assignments)
        rows = [model["embedding"](to_device(one, device)).cpu() for one in ids]
        logits = [model["head"](to_device(one, device)).cpu() for one in hidden]
    return {"rows": rows, "logits": logits}


def _tied(session: Session, config: Mapping[str, Any]) -> Any:
    embedding = made_op(session, "embedding", config)
    head = made_op(session, "lm_head", {**config, "embedding": embedding})
    return nn.ModuleDict({"embedding": embedding, "head": head})


def bound_op(
    session: Session,
    key: str,
    config: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    dtype: str,
    implementation: str = "",
) -> CustomOp:
    """An op on the device with its weights, bound as asked."""
    device, registry = session.device, session.registry
    with torch.device("meta"):
        outline = made_op(session, key, config)
    assignments = _assignments(session, outline, dtype, implementation)
    there = {
        name: to_device(value, device) if isinstance(value, torch.Tensor) else value
        for name, value in config.items()
    }
    with registry.overriding(assignments), torch.device(device):
        op = made_op(session, key, there)
    for name, weight in weights.items():
        owner, _, leaf = name.rpartition(".")
        getattr(op.get_submodule(owner), leaf).copy_(weight)
    bind_ops(op, registry, assignments)
    return op


def _assignments(
    session: Session, outline: CustomOp, dtype: str, implementation: str
) -> list[OpAssignment]:
    """The op as asked; those inside it as planned where it is native by plan, else native."""
    found = []
    for path, op in named_ops(outline):
        if implementation:
            pieces: Sequence[OpPiece] = (OpPiece(NATIVE if path else implementation),)
        else:
            pieces = choose(session, op, dtype).pieces
        found.append(OpAssignment(key=op.key, paths=(path,), pieces=tuple(pieces)))
    return found


def made_op(session: Session, key: str, config: Mapping[str, Any]) -> CustomOp:
    kept = {
        name: getattr(torch, value) if name == "dtype" else value for name, value in config.items()
    }
    made: CustomOp = session.registry.ops[key](**kept)
    return made


def _called(
    session: Session,
    op: CustomOp,
    arguments: Sequence[Any],
    device: torch.device,
    *,
    is_first: bool,
) -> dict[str, Any]:
    placed = [place(one, device) for one in arguments]
    given = [one.part if isinstance(one, Placed) else one for one in placed]
    num_rows = given[0].shape[0] if isinstance(given[0], torch.Tensor) else 0
    session.runtime.synchronize()
    trace = CopyTrace(device, [p for p in op.parameters() if p.dim() > 1])
    if is_first:
        raw = op(*given)
    else:
        with trace:
            raw = op(*given)
    session.runtime.synchronize()
    outputs = list(raw) if isinstance(raw, tuple) else [raw]
    done = {
        "outputs": [_on_host(one) for one in outputs],
        "devices": [one.device.type if isinstance(one, torch.Tensor) else "" for one in outputs],
        "inputs": [_on_host(one.base) if isinstance(one, Placed) else None for one in placed],
        "mutates": _mutates(op, num_rows),
        "copies": trace.counts(),
    }
    _poison(outputs, given)
    return done


def _mutates(op: CustomOp, num_rows: int) -> list[str]:
    piece = next(one for one in op.pieces if one.up_to is None or num_rows <= one.up_to)
    return list(piece.mutates)


def _poison(outputs: Sequence[Any], given: Sequence[Any]) -> None:
    """Overwrite results before their memory goes back, so that the next call finds rubbish in it.

    What is a part of an argument is left alone.
    """
    kept = {one.untyped_storage().data_ptr() for one in given if isinstance(one, torch.Tensor)}
    for one in outputs:
        if not isinstance(one, torch.Tensor) or one.untyped_storage().data_ptr() in kept:
            continue
        if one.dtype.is_floating_point and one.element_size() > 1:
            one.fill_(torch.nan)
        elif one.dtype is not torch.bool:
            one.zero_()


def _on_host(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
