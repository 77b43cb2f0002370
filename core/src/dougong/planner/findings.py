"""What planning finds on its way: problems to refuse with, fallbacks to tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dougong.config.decision import USER, platform_author
from dougong.errors import ConfigError, PluginError
from dougong.planner.execution_plan import Fallback, FallbackLevel


@dataclass(slots=True)
class Findings:
    """Problems and fallbacks so far; every part of planning adds its own.

    Attributes:
        subject: What is planned, as the first line of a refusal has it.
        platform: Whose proposals may be at fault.
        problems: What the user must change.
        faults: What the platform's vendor must change.
        fallbacks: In the order they were found.
    """

    subject: str
    platform: str
    problems: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)

    def refuse(self, problem: str, *, author: str = USER) -> None:
        """Note something that cannot work.

        Args:
            problem: What, why, what instead.
            author: Who asked for it; what the platform asked for is its vendor's to change.
        """
        is_platforms = author == platform_author(self.platform)
        (self.faults if is_platforms else self.problems).append(problem)

    def fall_back(
        self, level: FallbackLevel, subject: str, reason: str, cost_hint: str = ""
    ) -> None:
        """Note a fallback; the same subject and reason again are one."""
        if not any((one.subject, one.reason) == (subject, reason) for one in self.fallbacks):
            self.fallbacks.append(
                Fallback(level=level, subject=subject, reason=reason, cost_hint=cost_hint)
            )

    def ordered_fallbacks(self) -> tuple[Fallback, ...]:
        """Ops, then paths, then the platform."""
        return tuple(one for level in FallbackLevel for one in self.fallbacks if one.level is level)

    def check(self, *, is_strict: bool) -> None:
        """Raise what was noted.

        Raises:
            PluginError: The platform asked for what cannot work.
            ConfigError: The user did, or wants no fallback and there is one.
        """
        problems = [*self.problems, *(_refused_fallbacks(self) if is_strict else ())]
        if self.faults:
            lines = (f"  - {problem}" for problem in (*self.faults, *problems))
            head = f"Platform {self.platform} proposes what cannot work; report this to its vendor:"
            raise PluginError("\n".join((head, *lines)), plugin=self.platform)
        if problems:
            raise ConfigError(f"{self.subject}:", tuple(problems))


def _refused_fallbacks(findings: Findings) -> Iterable[str]:
    for one in findings.ordered_fallbacks():
        yield f"--strict refuses any fallback, and there is one: {one}"


def nested(head: str, reasons: Iterable[str]) -> str:
    """A problem with one line per candidate under it."""
    return "\n".join((head, *(f"      {reason}" for reason in reasons)))
