"""The application: routes, refusals and guards over one served engine."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse

from dougong import __version__
from dougong.errors import DougongError
from dougong.server import about, health, lora, page, status, tokens
from dougong.server.access import ApiKeys, RequestIds
from dougong.server.document import with_bodies
from dougong.server.errors import answer_error, answer_http_error
from dougong.server.openai import chat, completions, embeddings
from dougong.server.recent_errors import note_error
from dougong.server.serving import Serving


def make_app(serving: Serving) -> FastAPI:
    """An ASGI application.

    The pages of FastAPI that fetch scripts from elsewhere are off; its document stays at
    ``/openapi.json``.

    Args:
        serving: The engine and what its routes share; closed by whoever made it.
    """
    app = FastAPI(title="Dougong", version=__version__, docs_url=None, redoc_url=None)
    app.state.serving = serving
    for room in (completions, chat, embeddings, lora, about, tokens, health, status, page):
        app.include_router(room.router)
    app.add_exception_handler(DougongError, _answer_and_note)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(Exception, _answer_and_note)
    _guard(app, serving)
    _describe(app)
    return app


async def _answer_and_note(request: Request, error: Exception) -> JSONResponse:
    note_error(request.scope, error)
    return await answer_error(request, error)


def _guard(app: FastAPI, serving: Serving) -> None:
    """The last one added is the first to be asked."""
    settings = serving.settings
    if settings.api_keys:
        app.add_middleware(ApiKeys, keys=settings.api_keys)
    app.add_middleware(RequestIds)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
        )


def _describe(app: FastAPI) -> None:
    make = app.openapi
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(with_bodies(make()))
        return made

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change the document
