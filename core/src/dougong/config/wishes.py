"""What was asked for each option, by the user or by the platform, before rules fill the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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


@dataclass(slots=True)
class Wishes:
    """Wishes by option name, with the decisions and problems found so far.

    Rules read a wish with `get`, write every final value with `settle`, and note with `refuse` what
    cannot work; all problems are shown together at the end.
    """

    asked: dict[str, Wish]
    decisions: list[Decision] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of_user(cls, args: EngineArgs) -> Wishes:
        """The options that the user set."""
        values = asdict(args)
        return cls({name: Wish(values[name], USER, "asked for") for name in args.explicit})

    def get(self, name: str, kind: type[T]) -> T | None:
        """The value asked for, which is of ``kind``, or ``None``."""
        wish = self.asked.get(name)
        return None if wish is None else cast(T, wish.value)

    def is_explicit(self, name: str) -> bool:
        """Whether the user set it."""
        wish = self.asked.get(name)
        return wish is not None and wish.author == USER

    def settle(self, name: str, value: object, author: str, reason: str) -> None:
        """Record a final value that a rule chose."""
        self.decisions.append(Decision(name, value, author, reason))

    def settle_asked(self, name: str, value: object) -> None:
        """Record a final value that follows a wish."""
        wish = self.asked[name]
        self.settle(name, value, wish.author, wish.reason)

    def settle_or(self, name: str, default: T, author: str, reason: str) -> T:
        """The value asked for, else ``default``; recorded either way."""
        if name in self.asked:
            value = self.asked[name].value
            self.settle_asked(name, value)
            return cast(T, value)
        self.settle(name, default, author, reason)
        return default

    def refuse(self, problem: str) -> None:
        """Note something that cannot work."""
        self.problems.append(problem)

    def apply_changes(self, platform: str, changes: Sequence[ConfigChange]) -> None:
        """Take over what a platform proposes, never over what the user set.

        Raises:
            PluginError: A proposal is malformed: unknown field, wrong type, or two values for one.
        """
        author = platform_author(platform)
        for change in changes:
            _check_form(platform, change)
            present = self.asked.get(change.field)
            if present is None:
                self.asked[change.field] = Wish(change.value, author, change.reason)
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
