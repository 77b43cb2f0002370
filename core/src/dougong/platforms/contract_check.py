"""Load-time check of a plugin's class against a contract: every problem at once, before any use.

Checked are the classes of the plugin's own top-level package among the bases; what a library or the
core's published defaults bring is not the plugin's spelling. A public name in them that neither the
contract nor a published default has is refused, since nobody would ever call it: private helpers
start with ``_``, or live outside the class.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable
from typing import Any

from dougong.contracts.attention import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    MLAImpl,
)
from dougong.contracts.device import DeviceRuntime, MemoryPools, Profiler
from dougong.contracts.platform import Platform
from dougong.errors import ContractError
from dougong.platforms.signatures import member_problems, shown

# Optional abilities are Protocols of their own; a class may have their methods without naming them.
_OPTIONAL: dict[type, tuple[type, ...]] = {
    DeviceRuntime: (MemoryPools, Profiler),
    AttentionImpl: (MLAImpl,),
}
_PUBLISHED = ("dougong.contracts", "dougong.ops", "dougong.reference")
_MAY_BE_EMPTY = {"dist_backend", "visible_devices_env"}
_MADE_WITHOUT_ARGUMENTS: tuple[type, ...] = (Platform, AttentionBackend)
# The plugin's own code makes these, so how is its own affair.
_MADE_BY_THE_PLUGIN: tuple[type, ...] = (DeviceRuntime, AttentionImpl, AttentionMetadataBuilder)


def check_class(found: object, contract: type, *, subject: str, plugin: str | None = None) -> None:
    """Check a class that a plugin gives for ``contract``.

    Args:
        found: What its import string named.
        contract: One of the abstract classes of ``dougong.contracts``.
        subject: Import string and wheel, for the message.
        plugin: Entry-point name.

    Raises:
        ContractError: With every problem found.
    """
    if problems := problems_of(found, contract):
        raise ContractError(subject, problems, plugin=plugin)
    if isinstance(found, type):
        _warn_of_deprecated(found, contract)


def problems_of(found: object, contract: type) -> tuple[str, ...]:
    """Every way in which ``found`` does not fit, one sentence each; empty when it fits."""
    if not isinstance(found, type):
        return (f"it is a {type(found).__name__}, not a class",)
    if not issubclass(found, contract):
        return (f"it does not derive from {contract.__module__}.{contract.__name__}",)
    unknown = _unknown_names(found, contract)
    missing = sorted(getattr(found, "__abstractmethods__", frozenset()))
    return (
        *(_missing(name, contract, unknown) for name in missing),
        *_attribute_problems(found, contract),
        *(_unknown(name, owner, contract) for name, owner in unknown.items()),
        *(
            problem
            for owner, name in _overrides(found, contract)
            for problem in _compare(owner, name, found, contract)
        ),
        *_constructor_problems(found, contract),
    )


def _own_classes(found: type) -> list[type]:
    """Bases that the plugin itself wrote, the class first."""
    top = found.__module__.split(".")[0]
    return [
        base
        for base in found.__mro__
        if base.__module__.split(".")[0] == top and not _is_published(base)
    ]


def _is_published(owner: type) -> bool:
    return any(owner.__module__ == p or owner.__module__.startswith(p + ".") for p in _PUBLISHED)


def _givers(found: type, contract: type) -> list[type]:
    """Classes whose public names a plugin may define: the contract, its options, the defaults."""
    inherited = [b for b in found.__mro__ if _is_published(b) or b in contract.__mro__]
    options = [option for base in contract.__mro__ for option in _OPTIONAL.get(base, ())]
    return [*inherited, *options]


def _public_names(owner: type) -> Iterable[str]:
    """Names with a value on the class; slots are the instance's own affair."""
    return (
        name
        for name, value in vars(owner).items()
        if not name.startswith("_") and not inspect.ismemberdescriptor(value)
    )


def _announced(owner: type) -> dict[str, Any]:
    """Attributes that the class annotates without giving a value."""
    annotations: dict[str, Any] = vars(owner).get("__annotations__", {})
    return {name: text for name, text in annotations.items() if name not in vars(owner)}


def _unknown_names(found: type, contract: type) -> dict[str, type]:
    """Public names of the plugin's classes that nobody calls, with the class that has them."""
    givers = _givers(found, contract)
    known = {name for giver in givers for name in (*_public_names(giver), *_announced(giver))}
    return {
        name: owner
        for owner in _own_classes(found)
        if owner not in givers
        for name in _public_names(owner)
        if name not in known
    }


def _nearest(name: str, candidates: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.7)), None)


def _missing(name: str, contract: type, unknown: Iterable[str]) -> str:
    near = _nearest(name, unknown)
    hint = f"; is {near!r} meant to be it?" if near else ""
    return f"required {shown(name, inspect.getattr_static(contract, name))} is missing{hint}"


def _unknown(name: str, owner: type, contract: type) -> str:
    names = [n for base in contract.__mro__ for n in (*_public_names(base), *_announced(base))]
    near = _nearest(name, names)
    hint = f"did you mean {near!r}? " if near else ""
    return (
        f"{owner.__name__}.{name} is not in {contract.__name__}, so nobody calls it: {hint}"
        "Start a private helper with '_', or keep it outside the class"
    )


def _attribute_problems(found: type, contract: type) -> Iterable[str]:
    """Attributes that the contract announces without a value; each must be set on the class."""
    for base in contract.__mro__:
        for name, annotation in _announced(base).items():
            if "str" not in str(annotation):
                continue
            value = inspect.getattr_static(found, name, None)
            if value is None:
                yield f"the class attribute {name!r} is missing"
            elif not isinstance(value, str):
                yield f"the class attribute {name!r} is {value!r}; it must be a str"
            elif not value.strip() and name not in _MAY_BE_EMPTY:
                yield f"the class attribute {name!r} is empty"


def _overrides(found: type, contract: type) -> Iterable[tuple[type, str]]:
    """Public members and constructors that the plugin writes where a giver has one."""
    givers = _givers(found, contract)
    is_made_by_core = not issubclass(contract, _MADE_BY_THE_PLUGIN)
    for owner in _own_classes(found):
        if owner in givers:
            continue
        for name in vars(owner):
            if not name.startswith("_") or (name == "__init__" and is_made_by_core):
                yield owner, name


def _given(found: type, owner: type, name: str, contract: type) -> object:
    """The member that ``owner`` overrides; ``None`` when there is none to hold it against."""
    givers = [giver for giver in _givers(found, contract) if giver is not object]
    after = found.__mro__[found.__mro__.index(owner) + 1 :]
    ordered = sorted(givers, key=lambda g: after.index(g) if g in after else len(after))
    return next((vars(giver)[name] for giver in ordered if name in vars(giver)), None)


def _compare(owner: type, name: str, found: type, contract: type) -> Iterable[str]:
    given = _given(found, owner, name, contract)
    if given is None:
        return ()
    return member_problems(f"{owner.__name__}.{name}", vars(owner)[name], given)


def _constructor_problems(found: type, contract: type) -> Iterable[str]:
    if not issubclass(contract, _MADE_WITHOUT_ARGUMENTS) or "__init__" not in _all_names(found):
        return
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        yield f"it is made without arguments, and its constructor does not allow that: {error}"
    except ValueError:  # written in C: nothing to hold it against
        return


def _all_names(found: type) -> set[str]:
    return {name for base in found.__mro__ if base is not object for name in vars(base)}


def _warn_of_deprecated(found: type, contract: type) -> None:
    """Tell the implementer, by file and line, of overrides of names that will go.

    A deprecated member of a contract carries ``deprecated_in`` (the contract version) and, where
    there is one, ``use_instead`` as function attributes; of a property its getter does.
    """
    for owner, name in _overrides(found, contract):
        given = _function(_given(found, owner, name, contract))
        since = getattr(given, "deprecated_in", None)
        if since is None:
            continue
        written = _function(vars(owner)[name])
        code = getattr(inspect.unwrap(written), "__code__", None) if callable(written) else None
        instead = getattr(given, "use_instead", None)
        advice = f"; use {instead!r} instead" if instead else ""
        warnings.warn_explicit(
            f"{owner.__name__}.{name} overrides {contract.__name__}.{name}, deprecated since "
            f"contract {since} and gone two minor versions later{advice}",
            DeprecationWarning,
            filename=code.co_filename if code else owner.__module__,
            lineno=code.co_firstlineno if code else 1,
        )


def _function(member: object) -> object:
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)
