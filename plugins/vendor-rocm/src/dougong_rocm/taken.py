"""No layer is made that its backend does not take: its kernel would leave out what it cannot do."""

from __future__ import annotations

from dougong.contracts import AttentionBackend, AttentionRequest, UnsupportedError


def check_taken(backend: AttentionBackend, request: AttentionRequest) -> None:
    """Refuse a layer to which `AttentionBackend.supports` says no.

    Raises:
        UnsupportedError: With its reason.
    """
    if not (answer := backend.supports(request)):
        raise UnsupportedError(f"{backend.name} does not take this layer: {answer.reason}")
