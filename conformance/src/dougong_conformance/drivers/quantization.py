"""Weight formats: what the platform says it computes with."""

from __future__ import annotations

from typing import Any

from dougong_conformance.drivers.facts import plain
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("quantization.claimed")
def claimed(session: Session) -> list[dict[str, Any]]:
    """Fields of every ``QuantizationSupport`` of the platform."""
    return [plain(one) for one in session.platform.get_supported_quantization()]
