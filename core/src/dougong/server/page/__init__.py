"""``GET /``: the status page, a few files that are sent as they are.

The page asks nobody but this server, and its policy makes the browser hold it to that. It and its
files are open to all; what it shows comes from routes that an API key may guard.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_INDEX = "index.html"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # kept, but asked for each time: a new version shows at once
}


def _load() -> Mapping[str, bytes]:
    """Path → content, for every file of this folder that a browser reads."""
    folder = files(__name__)
    found = (one for one in folder.iterdir() if one.name.rpartition(".")[2] in _TYPES)
    return {"/" if one.name == _INDEX else f"/page/{one.name}": one.read_bytes() for one in found}


_FILES = _load()
PAGE_PATHS = frozenset(_FILES)
router = APIRouter()


async def _send(request: Request) -> Response:
    path = request.scope["path"]
    content = _FILES[path]
    kind = _TYPES[_INDEX.rpartition(".")[2] if path == "/" else path.rpartition(".")[2]]
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {**_HEADERS, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)


for _path in sorted(PAGE_PATHS):
    router.add_api_route(_path, _send, methods=["GET", "HEAD"], include_in_schema=False)
