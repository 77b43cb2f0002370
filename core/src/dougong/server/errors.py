"""Errors as clients read them: who can act decides the status, OpenAI's shape carries the words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from dougong.errors import (
    CapacityError,
    DeviceError,
    DougongError,
    EngineDeadError,
    RequestError,
)

RETRY_AFTER_S = 1
REQUEST_ID_HEADER = "X-Request-Id"
REQUEST_ID_KEY = "dougong.request_id"  # in the ASGI scope


class StoppingError(CapacityError):
    """The server takes nothing new; another one, or this one started again, may."""


class HttpRequestError(RequestError):
    """A request refused with a status of its own.

    Args:
        message: What, why, what instead.
        status: 4xx.
        code: One word for programs.
        field: The field or header at fault.
    """

    def __init__(
        self, message: str, *, status: int, code: str | None = None, field: str | None = None
    ) -> None:
        """Keep the status beside the message."""
        self.status = status
        self.code = code
        super().__init__(message, field=field)


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error, ready to be sent.

    Attributes:
        status: HTTP's.
        kind: ``type`` of OpenAI's error object.
        message: For people.
        field: ``param``: the field at fault.
        code: For programs.
    """

    status: int
    kind: str
    message: str
    field: str | None = None
    code: str | None = None

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.field,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The whole answer."""
        headers = {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status in (429, 503):
            headers["Retry-After"] = str(RETRY_AFTER_S)
        return JSONResponse(self.body(), self.status, headers)


def error_answer(error: Exception) -> ErrorAnswer:
    """What a client is told of an error. Of one nobody foresaw it learns nothing but that."""
    match error:
        case HttpRequestError():
            kind = "authentication_error" if error.status == 401 else "invalid_request_error"
            return ErrorAnswer(error.status, kind, str(error), error.field, error.code)
        case RequestError():
            return ErrorAnswer(400, "invalid_request_error", str(error), error.field)
        case StoppingError():
            return ErrorAnswer(503, "server_error", str(error), code="stopping")
        case CapacityError():
            return ErrorAnswer(429, "rate_limit_error", str(error), code="no_capacity")
        case EngineDeadError() | DeviceError():
            return ErrorAnswer(503, "server_error", str(error), code="engine_dead")
        case DougongError():
            return ErrorAnswer(500, "server_error", str(error))
    return ErrorAnswer(500, "server_error", "The server failed on this request; its log says how.")


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Handler of every exception that leaves a route.

    The answer to one that nobody foresaw is sent outside of every guard, so that it brings the
    request's id itself.
    """
    response = error_answer(error).response()
    if (request_id := request.scope.get(REQUEST_ID_KEY)) is not None:
        response.headers[REQUEST_ID_HEADER] = request_id
    return response


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Handler of what the framework refuses: unknown paths and methods."""
    status = int(getattr(error, "status_code", 400))
    what = f"{request.method} {request.url.path}"
    texts = {
        404: f"{what}: there is no such route. GET /openapi.json lists them.",
        405: f"{what}: this route has other methods. GET /openapi.json lists them.",
    }
    detail = texts.get(status, f"{what}: {getattr(error, 'detail', 'refused')}")
    response = ErrorAnswer(status, "invalid_request_error", detail).response()
    response.headers.update(getattr(error, "headers", None) or {})
    return response
