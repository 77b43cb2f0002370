from __future__ import annotations

from typing import cast

import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from dougong.checkpoint.unreachable import is_unreachable
from tests.support.hub_server import hub_error


def raised_by(library: str, name: str) -> Exception:
    """An error of a transport library that may not be installed."""
    base = type(name, (Exception,), {"__module__": f"{library}._exceptions"})
    return cast(Exception, type("Detail", (base,), {"__module__": library})("no route"))


def caused(cause: BaseException) -> Exception:
    error = FileNotFoundError("not in the cache")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "exc",
    [
        OfflineModeIsEnabled("HF_HUB_OFFLINE=1"),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
        hub_error(500),
        hub_error(503),
        raised_by("httpx", "NetworkError"),
        raised_by("httpx2", "TimeoutException"),
        raised_by("requests", "ConnectionError"),
        caused(raised_by("httpx", "NetworkError")),
    ],
    ids=repr,
)
def test_without_a_connection_the_hub_is_unreachable(exc: Exception) -> None:
    assert is_unreachable(exc)


@pytest.mark.parametrize(
    "exc",
    [
        TypeError("a fault of ours"),
        OSError(28, "No space left on device"),
        hub_error(401),
        hub_error(429),
        raised_by("acme", "NetworkError"),
        raised_by("httpx", "DecodingError"),
        caused(ValueError("damaged")),
    ],
    ids=repr,
)
def test_any_other_error_does_not_say_so(exc: Exception) -> None:
    assert not is_unreachable(exc)


def test_a_closed_port_is_unreachable() -> None:
    from huggingface_hub import HfApi

    with pytest.raises(Exception) as caught:  # noqa: PT011 - of a library that varies
        HfApi(endpoint="http://127.0.0.1:9").model_info("acme/tiny")
    assert is_unreachable(caught.value)
