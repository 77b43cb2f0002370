"""A platform's answers, each checked: one that fails is the plugin's fault, never a yes or a no."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from dougong.contracts import Capabilities, Claims, DeviceFacts
from dougong.errors import DougongError, PluginError
from dougong.platforms import LoadedPlatform, read_capabilities

T = TypeVar("T")


def ask_platform(plugin: str, name: str, ask: Callable[[], T]) -> T:
    """The answer of a query.

    Args:
        plugin: Name of the platform.
        name: Of the query, for the message.
        ask: Calls it.

    Raises:
        DougongError: As the platform raised it.
        PluginError: It raised anything else.
    """
    try:
        return ask()
    except DougongError:
        raise
    except (Exception, SystemExit) as exc:
        raise PluginError(
            f"Platform {plugin} failed to answer {name}(): {type(exc).__name__}: {exc}. "
            "A query must not raise; report this to the plugin's vendor.",
            plugin=plugin,
        ) from exc


def capabilities_of(loaded: LoadedPlatform, device_index: int) -> Capabilities:
    """Claims and facts, as far as planning counts on them.

    Facts are read in a short-lived child where the platform says that reading opens a context.

    Raises:
        DeviceError: The device does not answer.
        PluginError: A query raised, or its answer lacks what planning needs.
    """
    name = loaded.selection.platform
    capabilities = ask_platform(
        name, "facts and claims", lambda: read_capabilities(loaded, device_index)
    )
    problems = [*_facts_problems(capabilities.facts), *_claims_problems(capabilities.claims)]
    _refuse(loaded, f"device {device_index}", problems)
    return capabilities


def claims_of(loaded: LoadedPlatform, arch: str) -> Claims:
    """Claims of a family, as far as planning counts on them; no device is asked.

    Raises:
        PluginError: The query raised, or its answer lacks what planning needs.
    """
    claims = ask_platform(loaded.selection.platform, "claims", lambda: loaded.platform.claims(arch))
    _refuse(loaded, f"family {arch}", [*_claims_problems(claims)])
    return claims


def families_of(loaded: LoadedPlatform) -> tuple[str, ...]:
    """Families that the platform lists; empty: it lists none.

    Raises:
        PluginError: The query raised, or its answer is no list of names.
    """
    name = loaded.selection.platform
    answer: Any = ask_platform(name, "families", loaded.platform.families)
    is_list = isinstance(answer, Sequence) and not isinstance(answer, str)
    if not (is_list and all(isinstance(one, str) and one for one in answer)):
        raise PluginError(
            f"Platform {name} ({loaded.selection.row.wheel}) answered families() with {answer!r}, "
            "which is no list of names; report this to the plugin's vendor.",
            plugin=name,
        )
    return tuple(answer)


def _refuse(loaded: LoadedPlatform, subject: str, problems: Sequence[str]) -> None:
    if problems:
        name = loaded.selection.platform
        lines = [
            f"Platform {name} ({loaded.selection.row.wheel}) answered for {subject} "
            "with what cannot be planned with; report this to the plugin's vendor:",
            *(f"  - {problem}" for problem in problems),
        ]
        raise PluginError("\n".join(lines), plugin=name)


def _facts_problems(facts: object) -> Iterator[str]:
    if not isinstance(facts, DeviceFacts):
        yield f"facts() gave a {type(facts).__name__}, not DeviceFacts"
        return
    if not isinstance(facts.name, str) or not facts.name:
        yield f"facts().name is {facts.name!r}, not a name"
    if not isinstance(facts.memory_total_bytes, int) or facts.memory_total_bytes < 1:
        yield f"facts().memory_total_bytes is {facts.memory_total_bytes!r}, not a size"


def _claims_problems(claims: object) -> Iterator[str]:
    if not isinstance(claims, Claims):
        yield f"claims() gave a {type(claims).__name__}, not Claims"
        return
    kinds = {"dtypes": str, "kv_dtypes": str, "kv_block_sizes": int}
    for field, kind in kinds.items():
        values = getattr(claims, field)
        if not isinstance(values, tuple) or not values:
            yield f"claims().{field} is {values!r}; it needs a tuple of at least one"
        elif not all(isinstance(value, kind) for value in values):
            yield f"claims().{field} is {values!r}; each must be of type {kind.__name__}"
