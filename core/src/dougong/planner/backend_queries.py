"""Questions to attention backends. One that raises is its plugin's error, never an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from dougong.contracts import (
    AttentionBackend,
    AttentionRequest,
    GraphSupport,
    KVCacheSpec,
    KVLayout,
    Support,
)
from dougong.errors import PluginError

T = TypeVar("T")


class BackendQueries:
    """Asks each question once; the answers are the same every time by contract.

    Args:
        backends: By name, preferred first.
        preferred: `Platform.get_attn_backend_cls`.
        platform: Its name, for the faults.
    """

    def __init__(
        self,
        backends: Mapping[str, AttentionBackend],
        preferred: Callable[[AttentionRequest], str | None],
        platform: str,
    ) -> None:
        self.backends = backends
        self._preferred = preferred
        self._platform = platform
        self._supports: dict[tuple[str, AttentionRequest], Support] = {}
        self._layouts: dict[tuple[str, KVCacheSpec], KVLayout] = {}

    def supports(self, name: str, request: AttentionRequest) -> Support:
        """Whether a backend serves such a layer."""
        key = name, request
        if key not in self._supports:
            backend = self.backends[name]
            self._supports[key] = self._ask(
                name, f"supports({request})", lambda: backend.supports(request), Support
            )
        return self._supports[key]

    def kv_layout(self, name: str, spec: KVCacheSpec) -> KVLayout:
        """How a backend stores such a layer's cache."""
        key = name, spec
        if key not in self._layouts:
            backend = self.backends[name]
            self._layouts[key] = self._ask(
                name, f"kv_layout({spec})", lambda: backend.kv_layout(spec), KVLayout
            )
        return self._layouts[key]

    def graph_support(self, name: str) -> GraphSupport:
        """What of a backend may be captured."""
        return self._ask(
            name, "graph_support()", lambda: self.backends[name].graph_support(), GraphSupport
        )

    def workspace_bytes(self, name: str, request: AttentionRequest, max_num_tokens: int) -> int:
        """What a backend takes beside the cache."""
        question = f"workspace_bytes({request}, {max_num_tokens})"
        backend = self.backends[name]
        num_bytes = self._ask(
            name, question, lambda: backend.workspace_bytes(request, max_num_tokens), int
        )
        if num_bytes < 0:
            raise self._fault(f"{self._of(name)} answers {num_bytes} to {question}")
        return num_bytes

    def preferred(self, request: AttentionRequest) -> str | None:
        """Which backend the platform would use for such a layer."""
        question = f"get_attn_backend_cls({request})"
        try:
            name = self._preferred(request)
        except Exception as exc:
            raise self._fault(
                f"platform {self._platform!r} raised when asked {question}: "
                f"{type(exc).__name__}: {exc}"
            ) from exc
        if name is not None and name not in self.backends:
            raise self._fault(
                f"attention backend {name!r} of platform {self._platform!r} is preferred by "
                f"get_attn_backend_cls and not in get_attn_backends, which has "
                f"{', '.join(self.backends)}"
            )
        return name

    def _ask(self, name: str, question: str, ask: Callable[[], T], kind: type[T]) -> T:
        try:
            answer = ask()
        except Exception as exc:
            raise self._fault(
                f"{self._of(name)} raised when asked {question}: {type(exc).__name__}: {exc}"
            ) from exc
        if not isinstance(answer, kind):
            raise self._fault(
                f"{self._of(name)} answers {answer!r} to {question}, which is no {kind.__name__}"
            )
        return answer

    def _of(self, name: str) -> str:
        return f"attention backend {name!r} of platform {self._platform!r}"

    def _fault(self, message: str) -> PluginError:
        return PluginError(message, plugin=self._platform)
