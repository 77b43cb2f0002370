"""What was asked for each option, by the user or by the platform, before rules fill the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from dougong.config.args import EngineArgs
from dougong.config.decision import USER, Decision, platform_author
from dougong.contracts.config_view import ConfigChange
from dougong.errors import PluginError

T = TypeVar("T")

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "dtype": str,
    "kv_cache_dtype": str,
    "max_model_len": int,
    "block_size": int,
    "num_kv_blocks": int,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "enable_prefix_caching": bool,
    "attention_backend": str,
    "enforce_eager": bool,
    "device_memory_utilization": (float, int),
    "seed": int,
}
"""Fields a platform may propose a value for."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A value somebody asked for."""

    value: Any
    author: str
    reason: str
    plugin: str | None = None
    is_default: bool = False

    def __str__(self) -> str:
        return f"{self.author} ({self.reason})"


@dataclass(slots=True)
class Wishes:
    """Wishes by option name, with the decisions and problems found so far.

    Rules read a wish with `get`, write every final value with `settle`, note with `refuse` what
    cannot work, and go on with something in its place.

    Attributes:
        asked: By option: what was asked for, by whom.
        decisions: Final values so far.
        problems: What the user must change, and what planning goes on without.
        doubts: The same, where planning can go on with the value itself.
        dropped: Options whose value cannot even be planned with.
        faults: What a plugin's vendor must change.
        plugin: Name of the platform whose proposals were taken in.
    """

    asked: dict[str, Wish]
    decisions: list[Decision] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    plugin: str | None = None

    @classmethod
    def of_user(cls, args: EngineArgs) -> Wishes:
        """The options that the user set, and what the command takes for others."""
        asked = {one.field: Wish(one.value, one.author, one.reason, is_default=True)
                 for one in args.defaults}  # fmt: skip
        asked |= {name: Wish(getattr(args, name), USER, "asked for") for name in args.explicit}
        return cls(asked)

    def get(self, name: str, kind: type[T]) -> T | None:
        """The value asked for, which is of ``kind``, or ``None``."""
        wish = self.asked.get(name)
        return None if wish is None else cast(T, wish.value)

    def is_explicit(self, name: str) -> bool:
        """Whether the user set it."""
        wish = self.asked.get(name)
        return wish is not None and wish.author == USER

    def author_of(self, *names: str) -> str | None:
        """Who asked for the first of these options that anybody asked for."""
        return next((self.asked[name].author for name in names if name in self.asked), None)

    def lower_default(self, name: str, most: int, why: str) -> None:
        """Keep what a command proposed within a bound; what anybody else asked for stays."""
        wish = self.asked.get(name)
        if wish is not None and wish.is_default and wish.value > most:
            self.asked[name] = replace(wish, value=most, reason=f"{wish.reason}; {why}")

    def settle(
        self, name: str, value: object, author: str, reason: str, *, is_default: bool = False
    ) -> None:
        """Record a final value that a rule chose."""
        self.decisions.append(Decision(name, value, author, reason, is_default))

    def settle_asked(self, name: str, value: object) -> None:
        """Record a final value that follows a wish."""
        wish = self.asked[name]
        self.settle(name, value, wish.author, wish.reason)

    def settle_or(
        self, name: str, default: T, author: str, reason: str, *, is_default: bool = False
    ) -> T:
        """The value asked for, else ``default``; recorded either way."""
        if name in self.asked:
            value = self.asked[name].value
            self.settle_asked(name, value)
            return cast(T, value)
        self.settle(name, default, author, reason, is_default=is_default)
        return default

    def doubt(self, problem: str, *, of: str) -> None:
        """Note that the device does not claim the value of an option, which is taken all the same.

        What the user asked for is refused once every candidate has been asked, so that the message
        has their reasons too; what a platform proposed is refused at once.
        """
        if self.is_explicit(of):
            self.doubts.append(problem)
        else:
            self.refuse(problem, of=of)

    def refuse(self, problem: str, *, of: str | None = None) -> None:
        """Note something that cannot work.

        Args:
            problem: One sentence or two: what, why, what instead.
            of: The option whose value is at fault. Where a platform proposed that value, the
                problem is the plugin's and not the user's.
        """
        wish = None if of is None else self.asked.get(of)
        if wish is None or wish.author == USER:
            self.problems.append(problem)
        elif wish.plugin is None:
            self.problems.append(f"{problem} ({of}={wish.value} is from {wish})")
        else:
            proposal = f"{wish.author} proposes {of}={wish.value} ({wish.reason})"
            self.faults.append(f"{proposal}: {problem}")

    def drop(self, name: str) -> None:
        """Go on as if an option had been left open: its value was refused, and what stands in for
        it lets planning find what else is wrong."""
        self.asked.pop(name, None)
        self.dropped.add(name)

    def check(self) -> None:
        """Raise what a plugin's vendor must change; what the user must is told after planning.

        Raises:
            PluginError: A platform proposed what cannot work.
        """
        if self.faults:
            lines = [
                f"Platform {self.plugin} proposes what cannot work; report this to its vendor:",
                *(f"  - {problem}" for problem in (*self.faults, *self.problems)),
            ]
            raise PluginError("\n".join(lines), plugin=self.plugin)

    def apply_changes(self, platform: str, changes: Sequence[ConfigChange]) -> None:
        """Take over what a platform proposes, never over what the user set.

        Raises:
            PluginError: A proposal is malformed: unknown field, wrong type, or two values for one.
        """
        author, self.plugin = platform_author(platform), platform
        for change in changes:
            _check_form(platform, change)
            present = self.asked.get(change.field)
            if present is None or present.is_default:
                instead = "" if present is None else f", and not {present.value} as {present}"
                reason = change.reason + instead
                self.asked[change.field] = Wish(change.value, author, reason, platform)
            elif present.value == change.value:
                continue
            elif present.author == USER:
                self.refuse(
                    f"{change.field}={present.value} was asked for, but {author} needs "
                    f"{change.field}={change.value}: {change.reason}. Leave {change.field} unset, "
                    f"set it to {change.value}, or choose another platform."
                )
            else:
                raise PluginError(
                    f"{author} proposes two values for {change.field}: {present.value} and "
                    f"{change.value}. It must propose one.",
                    plugin=platform,
                )


def _check_form(platform: str, change: ConfigChange) -> None:
    kind = _TYPES.get(change.field)
    if kind is None:
        raise PluginError(
            f"Platform {platform} proposes a value for {change.field!r}, which it cannot change. "
            f"It may change: {', '.join(_TYPES)}.",
            plugin=platform,
        )
    is_bool_for_number = isinstance(change.value, bool) and kind is not bool
    if not isinstance(change.value, kind) or is_bool_for_number:
        raise PluginError(
            f"Platform {platform} proposes {change.field}={change.value!r}, which has the wrong "
            f"type ({type(change.value).__name__}).",
            plugin=platform,
        )
