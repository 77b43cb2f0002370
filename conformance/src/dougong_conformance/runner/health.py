"""The health probe, judged: a product of whole numbers, exact on every device."""

from __future__ import annotations

import torch

from dougong_conformance.outcomes import SubjectLost
from dougong_conformance.runner.limits import Limits
from dougong_conformance.runner.remote import RemoteSubject, SuiteFault
from dougong_conformance.subject import SubjectRaised

_SIZE = 8  # as drivers.health has it


def is_healthy(subject: RemoteSubject, limits: Limits) -> bool:
    """Whether the device computes; whatever else comes back says that it does not."""
    subject.clock.begin_case()
    try:
        found = subject.call("health.probe")
    except (SubjectRaised, SubjectLost, SuiteFault):
        return False
    return isinstance(found, torch.Tensor) and is_right(found)


def is_right(found: torch.Tensor) -> bool:
    """Whether it is the product that was asked for."""
    left = torch.arange(_SIZE * _SIZE, dtype=torch.float64).reshape(_SIZE, _SIZE).remainder(5)
    return found.shape == left.shape and torch.equal(found.double(), left @ left.t())
