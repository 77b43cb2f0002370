"""Whether one member of a class can be called wherever another was promised."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partialmethod
from inspect import Parameter, Signature

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def member_problems(where: str, written: object, given: object) -> Iterator[str]:
    """What in ``written`` breaks a caller who knows ``given``; both as they stand in ``vars``.

    Args:
        where: ``"Class.name"``, for the sentences.
        written: The plugin's member.
        given: The member that it overrides.
    """
    if isinstance(given, property):
        if _is_method(written):
            yield f"{where} is a method; the contract has a property"
        return
    if not _is_method(given):
        if _is_method(written) or isinstance(written, property):
            yield f"{where} is a {_kind(written)}; the contract has a plain attribute"
        return
    if not _is_method(written):
        yield f"{where} is a {_kind(written)}; the contract has a method"
        return
    if _is_for_class(given) and not _is_for_class(written):
        yield f"{where} needs an instance; the contract calls it on the class"
        return
    if inspect.iscoroutinefunction(_inner(written)) != inspect.iscoroutinefunction(_inner(given)):
        yield f"{where} must {'' if inspect.iscoroutinefunction(_inner(given)) else 'not '}be async"
        return
    theirs, ours = _bound_signature(written), _bound_signature(given)
    if theirs is None or ours is None:
        return
    if problems := list(_parameter_problems(theirs, ours)):
        yield f"{where}{_plain(theirs)} must take {_plain(ours)}: {'; '.join(problems)}"


def shown(name: str, member: object) -> str:
    """``method name(a, b)`` or ``property name``, for messages."""
    signature = _bound_signature(member) if _is_method(member) else None
    return f"{_kind(member)} {name}" + (str(signature) if signature else "")


def _is_method(member: object) -> bool:
    if isinstance(member, classmethod | staticmethod | partialmethod):
        return True
    return callable(member) and not isinstance(member, type)


def _is_for_class(member: object) -> bool:
    return isinstance(member, classmethod | staticmethod)


def _inner(member: object) -> object:
    return getattr(member, "__func__", member)


def _kind(member: object) -> str:
    if isinstance(member, property):
        return "property"
    return "method" if _is_method(member) else "plain attribute"


def _bound_signature(member: object) -> Signature | None:
    """Parameters as a caller sees them, without ``self``; ``None`` where Python cannot tell."""
    try:
        function = _inner(member)
        signature = inspect.signature(function) if callable(function) else None
    except (TypeError, ValueError):
        return None
    if signature is None:
        return None
    parameters = list(signature.parameters.values())
    if not isinstance(member, staticmethod) and parameters and (parameters[0].kind in _BY_POSITION):
        parameters = parameters[1:]
    return signature.replace(parameters=parameters)


def _plain(signature: Signature) -> str:
    """Names, kinds and defaults, without annotations."""
    bare = [p.replace(annotation=Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=Signature.empty))


def _parameter_problems(theirs: Signature, ours: Signature) -> Iterator[str]:
    kinds = {parameter.kind for parameter in theirs.parameters.values()}
    takes_any_position = Parameter.VAR_POSITIONAL in kinds
    takes_any_name = Parameter.VAR_KEYWORD in kinds
    positions = [p.name for p in theirs.parameters.values() if p.kind in _BY_POSITION]
    position = -1
    for name, wanted in ours.parameters.items():
        position += wanted.kind in _BY_POSITION
        has = theirs.parameters.get(name)
        if wanted.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            if wanted.kind not in kinds:
                yield f"{wanted} is missing"
        elif has is None or has.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            if not _is_absorbed(wanted, takes_any_position, takes_any_name):
                yield f"parameter {name!r} is missing"
        else:
            yield from _place_problems(has, wanted, positions, position)
            yield from _default_problems(has, wanted)
    for name, extra in theirs.parameters.items():
        is_open = extra.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if name not in ours.parameters and not is_open and extra.default is Parameter.empty:
            yield f"parameter {name!r} is not in the contract and has no default"


def _is_absorbed(wanted: Parameter, any_position: bool, any_name: bool) -> bool:
    """``*args, **kwargs`` take whatever way the caller passes it."""
    return (any_position or wanted.kind not in _BY_POSITION) and (
        any_name or wanted.kind not in _BY_NAME
    )


def _place_problems(
    has: Parameter, wanted: Parameter, positions: list[str], position: int
) -> Iterator[str]:
    if wanted.kind in _BY_POSITION:
        if has.kind not in _BY_POSITION:
            yield f"parameter {has.name!r} must be allowed by position"
        elif positions.index(has.name) != position:
            yield f"parameter {has.name!r} must stand at position {position + 1}"
    if wanted.kind in _BY_NAME and has.kind not in _BY_NAME:
        yield f"parameter {has.name!r} must be allowed by name"


def _default_problems(has: Parameter, wanted: Parameter) -> Iterator[str]:
    if wanted.default is Parameter.empty:
        return
    if has.default is Parameter.empty:
        yield f"parameter {has.name!r} must have the default {wanted.default!r}"
    elif has.default is not wanted.default and has.default != wanted.default:
        wrong = f"not {has.default!r}"
        yield f"parameter {has.name!r} must have the default {wanted.default!r}, {wrong}"
