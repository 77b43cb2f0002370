"""Backends that raise, or answer with what is no answer: never a yes or a no."""

from __future__ import annotations

from typing import Any

import pytest

from dougong.contracts import (
    AttentionRequest,
    PluginError,
    Support,
)
from tests.unit.planner.attention_harness import (
    planned,
)
from tests.unit.planner.paper import PaperBackend


class Raises(PaperBackend):
    """Raises when it is asked one thing."""

    def __init__(self, question: str) -> None:
        super().__init__("paper/broken")
        self._question = question

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "__dict__").get("_question"):
            return self._raise
        return object.__getattribute__(self, name)

    def _raise(self, *_: Any) -> Any:
        raise KeyError("chip")


@pytest.mark.parametrize("question", ["supports", "kv_layout", "workspace_bytes"])
def test_a_query_that_raises_is_the_plugins_error_and_never_an_answer(question: str) -> None:
    with pytest.raises(PluginError, match=rf"'paper/broken'.* raised when asked {question}.*chip"):
        planned(Raises(question), PaperBackend("reference/torch"))


class Answers(PaperBackend):
    """Answers with what is no answer."""

    def supports(self, request: AttentionRequest) -> Support:
        return True  # type: ignore[return-value]  # the fault


def test_an_answer_of_the_wrong_kind_is_the_plugins_error() -> None:
    with pytest.raises(PluginError, match="answers True to supports"):
        planned(Answers("paper/wrong"))
    with pytest.raises(PluginError, match="answers -1 to workspace_bytes"):
        planned(PaperBackend("paper/wrong", workspace=-1))


def test_a_preference_that_is_not_listed_or_raises_is_the_plugins_error() -> None:
    with pytest.raises(PluginError, match=r"'paper/gone'.* not in get_attn_backends"):
        planned(PaperBackend("paper/fast"), preferred="paper/gone")

    def broken(request: AttentionRequest) -> str | None:
        raise OSError("no chip")

    with pytest.raises(PluginError, match=r"raised when asked get_attn_backend_cls.*no chip"):
        planned(PaperBackend("paper/fast"), candidates={"preferred": broken})
