from __future__ import annotations

import pytest

from dougong.errors import (
    CapacityError,
    DeviceLost,
    DougongError,
    EngineDeadError,
    PluginError,
    RequestError,
)
from dougong.server.errors import HttpRequestError, StoppingError, error_answer
from tests.unit.server.conftest import Served


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("no", field="n"), 400, "invalid_request_error"),
        (HttpRequestError("no", status=404, field="model"), 404, "invalid_request_error"),
        (HttpRequestError("no", status=401), 401, "authentication_error"),
        (CapacityError("full"), 429, "rate_limit_error"),
        (StoppingError("bye"), 503, "server_error"),
        (EngineDeadError("gone"), 503, "server_error"),
        (DeviceLost("gone"), 503, "server_error"),
        (PluginError("broken"), 500, "server_error"),
        (DougongError("no text"), 500, "server_error"),
    ],
)
def test_who_can_act_decides_the_status(error: Exception, status: int, kind: str) -> None:
    answer = error_answer(error)
    assert (answer.status, answer.kind, answer.message) == (status, kind, str(error))
    assert answer.field == getattr(error, "field", None)


def test_of_an_unforeseen_error_the_client_learns_no_detail() -> None:
    assert "secret" not in error_answer(ValueError("secret")).message


@pytest.mark.parametrize(("status", "header"), [(401, "www-authenticate"), (429, "retry-after")])
def test_headers_that_a_status_needs_are_there(status: int, header: str) -> None:
    error = HttpRequestError("no", status=401) if status == 401 else CapacityError("full")
    assert header in error_answer(error).response().headers


async def test_unknown_routes_and_methods_are_told_in_the_same_shape(served: Served) -> None:
    missing = await served.client.get("/v2/nothing")
    assert missing.status_code == 404
    assert "/v2/nothing" in missing.json()["error"]["message"]
    wrong = await served.client.get("/v1/completions")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"]["type"] == "invalid_request_error"


async def test_an_unforeseen_failure_of_one_request_is_a_500_and_ends_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("inside")

    with monkeypatch.context() as patched:
        patched.setattr(served.engine.tokenizer, "encode", fail)
        failed = await served.post("/v1/completions", prompt="A")
    assert failed.status_code == 500
    assert "inside" not in failed.text
    assert (await served.post("/v1/completions", prompt="A")).status_code == 200
