"""A vendor's ops, registered under their real schemas over plain torch, while a block runs.

A call of the plugin then meets the published schema in torch's own dispatcher, at run time: a wrong
name, a wrong type, a missing argument fails as it would with the vendor's wheel. What is computed
comes from references, which belong to the vendor's tests and should raise where the vendor's
documentation says that the op refuses.
"""

from __future__ import annotations

import atexit
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from dougong_conformance.ladder.golden import Golden, compare, registered


@dataclass
class StandIn:
    """What is registered, and what was called.

    Attributes:
        calls: Op → how often its reference ran in this process. An engine that quietly went another
            way is seen here.
    """

    calls: Counter[str] = field(default_factory=Counter)

    def uncalled(self, ops: Mapping[str, Any]) -> tuple[str, ...]:
        """Ops whose reference never ran, sorted."""
        return tuple(sorted(op for op in ops if not self.calls[op]))


@contextmanager
def define(
    golden: Golden,
    implementations: Mapping[str, Callable[..., Any]],
    *,
    key: str = "CompositeExplicitAutograd",
    fakes: Mapping[str, Callable[..., Any]] | None = None,
) -> Iterator[StandIn]:
    """Register ops of a golden file over references, for the time of the block.

    Args:
        golden: The vendor's schemas; ops that are registered already must have the same.
        implementations: Op, with its overload where it has one → reference. It is called as the
            schema says and writes in place what the schema marks as written. Of several blocks one
            inside the other the inner one's is in force.
        key: Dispatch key of the references: this one serves every device.
        fakes: Op → function on fake tensors; without one the reference runs on them.

    Raises:
        KeyError: The golden file has no such op.
        ValueError: An op is registered already under another schema.
    """
    fakes = dict(fakes or {})
    if unknown := sorted({*implementations, *fakes} - golden.schemas.keys()):
        raise KeyError(f"{golden.name or 'the golden file'} has no {', '.join(unknown)}")
    wanted = dict.fromkeys((*implementations, *fakes))
    present = registered({op.partition("::")[0] for op in wanted})
    known = {op: golden.schemas[op] for op in wanted if op in present}
    if drift := compare(Golden(known, ""), {op: present[op] for op in known}):
        raise ValueError("registered already under another schema: " + "; ".join(drift))
    made = StandIn()
    with ExitStack() as stack:
        for op, function in implementations.items():
            counted = _counted(op, golden.schemas[op], function, made)
            stack.enter_context(_registered(op, key, counted, golden.schemas[op], op in present))
        for op, function in fakes.items():
            stack.enter_context(_registered(op, _FAKE, function, golden.schemas[op], op in present))
        yield made


_FAKE = "fake"
_libraries: dict[str, Any] = {}
"""Op → the library that holds what is registered of it."""
_kernels: dict[tuple[str, str], list[Callable[..., Any]]] = {}
"""Op and key → functions, the last one in force: torch itself takes one and warns of a second."""


@contextmanager
def _registered(
    op: str, key: str, function: Callable[..., Any], schema: str, is_present: bool
) -> Iterator[None]:
    namespace, _, name = op.partition("::")
    if op not in _libraries:
        make_library: Any = torch.library.Library  # torch's own has no types
        _libraries[op] = make_library(namespace, "FRAGMENT")
        if not is_present:
            _libraries[op].define(schema.partition("::")[2])
    if (op, key) not in _kernels:
        _kernels[op, key] = []
        if key == _FAKE:
            torch.library.register_fake(op, _last(op, key), lib=_libraries[op])
        else:
            _libraries[op].impl(name, _last(op, key), key)
    _kernels[op, key].append(function)
    try:
        yield
    finally:
        _kernels[op, key].remove(function)
        if not any(functions for (other, _), functions in _kernels.items() if other == op):
            _libraries.pop(op)._destroy()
            for one in [one for one in _kernels if one[0] == op]:
                del _kernels[one]


def _last(op: str, key: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return _kernels[op, key][-1](*args, **kwargs)

    return call


_KEPT = ExitStack()
atexit.register(_KEPT.close)  # while the interpreter still has what closing needs


def install(
    golden: Golden,
    implementations: Mapping[str, Callable[..., Any]],
    *,
    key: str = "CompositeExplicitAutograd",
    fakes: Mapping[str, Callable[..., Any]] | None = None,
) -> StandIn:
    """`define` for as long as the process lives: for a module that a platform double names."""
    return _KEPT.enter_context(define(golden, implementations, key=key, fakes=fakes))


def _counted(
    op: str, schema: str, function: Callable[..., Any], made: StandIn
) -> Callable[..., Any]:
    arguments = torch._C.parse_schema(schema).arguments
    needed = {one.name: place for place, one in enumerate(arguments) if str(one.type) == "Tensor"}
    fill = _defaults(arguments, function)

    @functools.wraps(function)
    def reference(*args: Any, **kwargs: Any) -> Any:
        given = [kwargs.get(name, *args[place : place + 1]) for name, place in needed.items()]
        if None in [one for one in given if not isinstance(one, torch.Tensor)]:
            raise TypeError(f"{op} is given None for a tensor, which torch itself lets pass")
        made.calls[op] += 1
        args, kwargs = fill(args, kwargs)
        return function(*args, **kwargs)

    return reference


_Given = tuple[tuple[Any, ...], dict[str, Any]]


def _defaults(
    arguments: Sequence[Any], function: Callable[..., Any]
) -> Callable[[tuple[Any, ...], dict[str, Any]], _Given]:
    """Fills in what the dispatcher leaves out: an argument that has the schema's default value.

    Else the reference's own default would count, which may be another one. Only what the reference
    takes is filled in.
    """
    try:
        takes = tuple(inspect.signature(function).parameters.values())
    except ValueError:  # torch's own functions do not tell
        return lambda args, kwargs: (args, kwargs)
    kinds = [one.kind for one in takes]
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    num_places = len(arguments) if inspect.Parameter.VAR_POSITIONAL in kinds else 0
    num_places = num_places or sum(kind in by_place for kind in kinds)
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    by_name = {one.name for one in takes if one.kind not in (by_place[0],)}
    places = [one for one in arguments if not one.kwarg_only][:num_places]
    named = [one for one in arguments if one.kwarg_only and (takes_any or one.name in by_name)]

    def fill(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Given:
        missing = [one for one in named if one.name not in kwargs and one.has_default_value()]
        kwargs = {**{one.name: one.default_value for one in missing}, **kwargs}
        rest = places[len(args) :]
        if all(one.has_default_value() and one.name not in kwargs for one in rest):
            args = (*args, *(one.default_value for one in rest))
        return args, kwargs

    return fill
