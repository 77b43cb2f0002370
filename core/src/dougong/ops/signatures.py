"""Whether a function can be called as the core will call it, and if not, why."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_problems(
    function: Callable[..., Any], names: Sequence[str], *, has_self: bool = False
) -> Iterator[str]:
    """What is wrong with a function that will be given ``names`` by position.

    A name that the function has in another place is a mistake that would compute nonsense; any
    other name is its author's choice. What cannot be inspected is believed.

    Args:
        function: A kernel, a method.
        names: What is passed, in order.
        has_self: Its first parameter is the object and is not among ``names``.
    """
    signature = _signature(function)
    if signature is None:
        return
    passed = ("self", *names) if has_self else tuple(names)
    taken = list(signature.parameters.values())
    said = f"it takes {_listed(taken[has_self:])} and is called with ({', '.join(names)})"
    if problem := _unbound(signature, passed):
        yield f"{said}: {problem}"
        return
    for parameter, name in zip(taken, passed, strict=False):
        if parameter.kind not in _BY_POSITION:
            return
        if parameter.name in names and parameter.name != name:
            yield f"{said}: {parameter.name} stands where {name} is passed"
            return


def construction_problems(cls: type, base: type) -> Iterator[str]:
    """Why ``cls`` cannot be made with the arguments that make a ``base``."""
    wanted = inspect.signature(base.__init__)  # type: ignore[misc]  # of a class, not of an instance
    signature = _signature(cls.__init__)  # type: ignore[misc]  # as above
    if signature is None:
        return
    everything = list(wanted.parameters.values())[1:]
    required = [one for one in everything if one.default is one.empty]
    for parameters in (everything, required):
        names = [one.name for one in parameters if one.kind in _BY_POSITION]
        for args, kwargs in ((names, {}), ([], dict.fromkeys(names))):
            try:
                signature.bind("self", *args, **kwargs)
            except TypeError as exc:
                yield (
                    f"its __init__ takes {_listed(list(signature.parameters.values())[1:])}; it is "
                    f"made with those of {base.__qualname__}, {_listed(everything)}: {exc}"
                )
                return


def waiting_problems(function: Callable[..., Any]) -> Iterator[str]:
    """Why a function gives no result when it is called: somebody has to wait for it, or go on."""
    called = inspect.unwrap(function)
    if inspect.iscoroutinefunction(called):
        yield "it is a coroutine function (async def); ops are called and give their result at once"
    elif inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        yield "it is a generator function (it yields); ops are called and give their result at once"


def has_own_call(cls: type) -> bool:
    """Whether objects of a class can be called."""
    return any("__call__" in vars(base) for base in cls.__mro__)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """``None``: it is written in another language and says nothing of itself."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _unbound(signature: inspect.Signature, passed: Sequence[str]) -> str:
    try:
        signature.bind(*passed)
    except TypeError as exc:
        return str(exc)
    return ""


def _listed(parameters: Sequence[inspect.Parameter]) -> str:
    signs: dict[object, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    return f"({', '.join(signs.get(one.kind, '') + one.name for one in parameters)})"
