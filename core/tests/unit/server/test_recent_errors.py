from __future__ import annotations

import pytest

from dougong.errors import CapacityError, EngineDeadError, RequestError
from dougong.server.errors import HttpRequestError, StoppingError
from dougong.server.recent_errors import KEPT_ERRORS, RecentErrors

SECRET = "what the client wrote"


@pytest.fixture
def errors() -> RecentErrors:
    return RecentErrors()


@pytest.mark.parametrize(
    "error",
    [RequestError(SECRET, field="prompt"), HttpRequestError(SECRET, status=404)],
)
def test_wrong_requests_are_their_clients_affair(errors: RecentErrors, error: Exception) -> None:
    errors.note("/v1/completions", error)
    assert errors.newest_first() == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CapacityError("no room"), 429),
        (StoppingError("stopping"), 503),
        (EngineDeadError("killed"), 503),
    ],
)
def test_what_an_operator_can_act_on_is_kept_with_its_words(
    errors: RecentErrors, error: Exception, status: int
) -> None:
    errors.note("/v1/completions", error)
    (one,) = errors.newest_first()
    assert (one["status"], one["message"]) == (status, str(error))
    assert one["route"] == "/v1/completions"
    assert one["kind"] == type(error).__name__


def test_the_words_of_an_unforeseen_error_stay_in_the_log(errors: RecentErrors) -> None:
    errors.note("/tokenize", ValueError(SECRET))
    (one,) = errors.newest_first()
    assert (one["status"], one["kind"]) == (500, "ValueError")
    assert SECRET not in str(one)


def test_one_like_the_last_is_counted_there_and_others_are_not(errors: RecentErrors) -> None:
    for route in ("/a", "/a", "/a", "/b", "/a"):
        errors.note(route, CapacityError("no room"))
    assert [(one["route"], one["count"]) for one in errors.newest_first()] == [
        ("/a", 1),
        ("/b", 1),
        ("/a", 3),
    ]


def test_few_are_kept_and_none_is_long(errors: RecentErrors) -> None:
    for number in range(KEPT_ERRORS + 5):
        errors.note(f"/{number}", EngineDeadError("x" * 10_000))
    kept = errors.newest_first()
    assert len(kept) == KEPT_ERRORS
    assert kept[0]["route"] == f"/{KEPT_ERRORS + 4}"
    assert all(len(one["message"]) <= 500 for one in kept)
