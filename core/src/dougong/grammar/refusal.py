"""What a client is told of a wish that the library refuses."""

from __future__ import annotations

from dougong.errors import RequestError

_MAX_REASON_CHARS = 500


def refusal(kind: str, reason: str) -> RequestError:
    """The error for it.

    Args:
        kind: The field at fault.
        reason: The library's own words.
    """
    return RequestError(
        f"{kind} cannot be followed: {_shortened(reason)}. Change it to what the field takes "
        "(docs/structured_output.md lists it).",
        field=kind,
    )


def _shortened(reason: str) -> str:
    """The library's first line, and what it calls an error, without drawings and lists."""
    first, *rest = [line.strip() for line in reason.splitlines() if line.strip()] or ["no reason"]
    errors = [line for line in rest if line.startswith("error:")]
    told = " ".join([first.split(" following special tokens")[0], *errors])
    return told[:_MAX_REASON_CHARS].rstrip(" .:;")
