"""What a plan would bind to one op, and which implementations could run it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dougong.config.op_switches import OpSwitches
from dougong.contracts import Available, BindRequest, Capabilities, OpPiece, token_bounds
from dougong.describe import OpSite
from dougong.ops import CustomOp
from dougong.planner.op_candidates import OpCandidates, device_request
from dougong.planner.op_site import judge_site

from dougong_conformance.session import Session

_MOST_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class OpChoice:
    """The planner's answer for one op.

    Attributes:
        holding: Implementation whose conditions hold → fewest and most tokens.
        objections: Implementation → why it cannot run.
        pieces: What would be bound.
    """

    holding: Mapping[str, tuple[int, int | None]]
    objections: Mapping[str, str]
    pieces: tuple[OpPiece, ...]


def choose(session: Session, op: CustomOp, dtype: str) -> OpChoice:
    """As the planner chooses, for an op that belongs to no model."""
    ops = session.registry.candidates()
    candidates = OpCandidates.on_device(ops, bind_request(session, dtype), _MOST_TOKENS)
    site = OpSite(key=op.key, path="", properties=op.properties())
    verdict = judge_site(site, candidates, OpSwitches(), {})
    holding = {
        one.name: token_bounds(one.tokens)
        for one in candidates.get(op.key)
        if one.name not in verdict.objections
    }
    return OpChoice(holding, dict(verdict.objections), verdict.pieces)


def bind_request(session: Session, dtype: str) -> BindRequest:
    """What conditions are held against on this session's device; kept for the session."""
    name = f"ops.bind_request {dtype}"
    found = session.kept.get(name)
    if found is None:
        kernels = session.kernels
        answer = session.plugin.descriptor.probe()
        devices = answer.devices if isinstance(answer, Available) else ()
        arch = next((one.arch for one in devices if one.index == session.device_index), "")
        capabilities = Capabilities(
            session.platform.claims(arch), session.platform.facts(session.device_index)
        )
        found = device_request(capabilities, dtype, kernels, dict(os.environ))
        session.kept[name] = found
    request: BindRequest = found
    return request
