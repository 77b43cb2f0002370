"""``--attention-backend``: one name, or one for prefill and one for decode."""

from __future__ import annotations

from dataclasses import dataclass

from dougong.config import EngineConfig
from dougong.config.decision import USER, Decision, platform_author
from dougong.planner.findings import Findings

_FORM = "write attention_backend=NAME or attention_backend=prefill=NAME,decode=NAME"


@dataclass(frozen=True, slots=True)
class AttentionWish:
    """What somebody asked for.

    Attributes:
        prefill: Name of a backend.
        decode: Of the one for sequences with one query token; mostly the same.
        text: The option's value as it was given.
        author: Who asked.
    """

    prefill: str
    decode: str
    text: str
    author: str = USER

    @property
    def is_pair(self) -> bool:
        """Whether two backends were asked for."""
        return self.prefill != self.decode


def read_attention_wish(
    config: EngineConfig, decisions: tuple[Decision, ...], findings: Findings
) -> AttentionWish | None:
    """What was asked for; ``None``: nothing, or something malformed, which is noted."""
    text = config.compute.attention_backend
    if text is None:
        return None
    author = _author(config, decisions, findings.platform)
    if "=" not in text:
        return AttentionWish(text, text, text, author)
    parts = [part.partition("=") for part in text.split(",")]
    names = {phase.strip(): name.strip() for phase, _, name in parts}
    if len(parts) != 2 or set(names) != {"prefill", "decode"} or not all(names.values()):
        findings.refuse(f"attention_backend={text} is malformed; {_FORM}.", author=author)
        return None
    return AttentionWish(names["prefill"], names["decode"], text, author)


def _author(config: EngineConfig, decisions: tuple[Decision, ...], platform: str) -> str:
    if "attention_backend" in config.explicit:
        return USER
    said = [one.author for one in decisions if one.field == "attention_backend"]
    return said[-1] if said else platform_author(platform)
