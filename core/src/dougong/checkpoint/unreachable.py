"""Whether an error of the hub's client says that the hub cannot be reached, and nothing else."""

from __future__ import annotations

# By name: which of these libraries carries the requests depends on the version of huggingface_hub,
# and the core depends on none of them itself.
_TRANSPORTS = frozenset({"httpx", "httpx2", "requests"})
_TRANSPORT_ERRORS = frozenset(
    {
        "NetworkError",
        "TimeoutException",
        "RemoteProtocolError",
        "ProxyError",
        "ConnectionError",
        "Timeout",
        "ChunkedEncodingError",
    }
)
_FIRST_SERVER_ERROR = 500


def is_unreachable(exc: BaseException) -> bool:
    """No connection, a time-out, a hub that is down (5xx), or offline mode; also as the cause."""
    if isinstance(exc, ConnectionError | TimeoutError):  # offline mode is a ConnectionError
        return True
    if any(_is_transport_error(cls) for cls in type(exc).__mro__):
        return True
    status = getattr(getattr(exc, "response", None), "status_code", None)
    if isinstance(status, int) and status >= _FIRST_SERVER_ERROR:
        return True
    return exc.__cause__ is not None and is_unreachable(exc.__cause__)


def _is_transport_error(cls: type) -> bool:
    return cls.__module__.split(".")[0] in _TRANSPORTS and cls.__name__ in _TRANSPORT_ERRORS
