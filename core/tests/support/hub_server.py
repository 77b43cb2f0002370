"""A stand-in for a Hugging Face hub: the few endpoints that ``huggingface_hub`` asks, over HTTP.

Start it with `hub_server`; set ``HF_ENDPOINT`` to its ``url``.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from huggingface_hub.errors import HfHubHTTPError


@dataclass
class FakeRepo:
    """One model repository.

    Attributes:
        files: Path to content.
        revisions: Branches and tags beside ``main``.
        is_gated: Answers as a repository whose terms were not accepted.
    """

    files: Mapping[str, bytes]
    revisions: tuple[str, ...] = ()
    is_gated: bool = False

    @property
    def commit(self) -> str:
        digest = hashlib.sha1(b"".join(sorted(name.encode() for name in self.files)))
        return digest.hexdigest()


@dataclass
class FakeHub:
    """The running server.

    Attributes:
        url: For ``HF_ENDPOINT``.
        repos: Repositories by id.
        downloads: Paths of file contents sent, in order.
    """

    url: str
    repos: dict[str, FakeRepo]
    downloads: list[str] = field(default_factory=list)


def hub_error(status: int) -> HfHubHTTPError:
    """What the client raises for an answer of ``status``."""
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    return HfHubHTTPError(f"status {status}", response=cast(Any, response))


@contextlib.contextmanager
def hub_server(repos: Mapping[str, FakeRepo]) -> Iterator[FakeHub]:
    """Serve ``repos`` on a free local port until the block ends."""
    hub = FakeHub("", dict(repos))
    handler = type("Handler", (_Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test output quiet."""

    def _answer(self, *, with_body: bool) -> None:
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(part) for part in url.path.strip("/").split("/")]
        query = urllib.parse.parse_qs(url.query)
        if parts == ["api", "models"]:
            return self._send_json(self._search(query))
        if parts[:2] == ["api", "models"]:
            return self._api("/".join(parts[2:4]), parts[4:])
        if len(parts) > 4 and parts[2] == "resolve":
            return self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]), with_body)
        return self._fail(404, "EntryNotFound")

    def _search(self, query: Mapping[str, list[str]]) -> list[dict[str, str]]:
        search = query.get("search", [""])[0].lower()
        author = query.get("author", [""])[0]
        return [
            {"id": name, "modelId": name}
            for name in self.hub.repos
            if search in name.lower() and name.startswith(author)
        ]

    def _api(self, repo_id: str, rest: list[str]) -> None:
        repo = self._repo(repo_id, rest[1] if len(rest) > 1 else "main")
        if repo is None:
            return
        if rest and rest[0] == "tree":
            entries = [_tree_entry(path, data) for path, data in repo.files.items()]
            return self._send_json(entries)
        siblings = [{"rfilename": path} for path in repo.files]
        self._send_json({"id": repo_id, "sha": repo.commit, "siblings": siblings})

    def _file(self, repo_id: str, revision: str, path: str, with_body: bool) -> None:
        repo = self._repo(repo_id, revision)
        if repo is None:
            return
        if path not in repo.files:
            return self._fail(404, "EntryNotFound")
        data = repo.files[path]
        if with_body:
            self.hub.downloads.append(path)
        self.send_response(200)
        self.send_header("X-Repo-Commit", repo.commit)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def _repo(self, repo_id: str, revision: str) -> FakeRepo | None:
        repo = self.hub.repos.get(repo_id)
        if repo is None:
            self._fail(404, "RepoNotFound")
        elif repo.is_gated:
            self._fail(403, "GatedRepo")
        elif revision not in ("main", repo.commit, *repo.revisions):
            self._fail(404, "RevisionNotFound")
        else:
            return repo
        return None

    def _fail(self, status: int, code: str) -> None:
        self._send_json({"error": code}, status=status, headers={"X-Error-Code": code})

    def _send_json(
        self, body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _tree_entry(path: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(data).hexdigest()
    return {"type": "file", "path": path, "size": len(data), "oid": oid}
