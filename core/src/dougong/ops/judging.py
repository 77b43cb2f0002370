"""What may be wrong with a registered implementation or op: one sentence per problem."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Any

import torch

from dougong.ops.custom_op import CustomOp
from dougong.ops.failures import reason_of
from dougong.ops.marks import KernelTerms, is_namespaced
from dougong.ops.signatures import (
    call_problems,
    construction_problems,
    has_own_call,
    waiting_problems,
)


def key_problems(key: str, known: Collection[str]) -> Iterator[str]:
    """The op is not in the catalogue, nor a plugin's."""
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        yield f"there is no op {key!r}; {hint}known: {', '.join(sorted(known))}"


def kernel_problems(target: Any, terms: object, op: type[CustomOp]) -> Iterator[str]:
    """Of a kernel for ``op``: conditions, what it overwrites, how it is called."""
    if not isinstance(terms, KernelTerms):
        yield "it was not marked with register_kernel"
        return
    yield from _condition_problems(terms, op)
    if forbidden := sorted(set(terms.mutates) - set(op.may_mutate)):
        yield (
            f"it overwrites {', '.join(forbidden)}; {op.key} allows "
            f"{', '.join(op.may_mutate) or 'no argument'} to be overwritten"
        )
    if isinstance(target, type):
        yield from _prepared_problems(target, op)
    else:
        yield from waiting_problems(target)
        yield from call_problems(target, (*op.arg_names(), *op.kernel_arg_names))


def class_problems(target: Any, op: type[CustomOp], terms: object = None) -> Iterator[str]:
    """Of an out-of-tree class for ``op``; ``terms`` has its conditions, where it has any."""
    if not isinstance(target, type) or not issubclass(target, op):
        yield f"it does not derive from {_path(op)}, the class of op {op.key!r}"
        return
    if target is op:
        yield "it is the op's own class; derive from it"
        return
    if isinstance(terms, KernelTerms):
        yield from _condition_problems(terms, op)
    if target.key != op.key:
        yield f"its key is {target.key!r} and it is registered for {op.key!r}"
    if target.forward_native is not op.forward_native:
        yield (
            "it defines forward_native, which says what the op means and stays the core's; "
            "compute in forward_oot"
        )
    if target.__call__ is not op.__call__:
        yield "it defines __call__, so that what is bound would not run; compute in forward_oot"
    yield from construction_problems(target, op)
    yield from waiting_problems(target.forward_oot)
    yield from call_problems(target.forward_oot, op.arg_names(), has_self=True)


def has_own_forward_oot(target: type[CustomOp], op: type[CustomOp]) -> bool:
    """Whether an out-of-tree class computes anything itself."""
    return target.forward_oot is not op.forward_oot


def op_problems(target: Any, catalogue: Collection[str]) -> Iterator[str]:
    """Of a plugin's own op; its example is run."""
    if not isinstance(target, type) or not issubclass(target, CustomOp):
        yield f"it does not derive from {_path(CustomOp)}"
        return
    if target.key in catalogue or not is_namespaced(target.key):
        yield f"its key {target.key!r} is not namespaced, as in 'acme/fast_norm'"
    if "key" not in vars(target):
        yield f"it inherits its key {target.key!r}; a new op has a new one"
    if target.__call__ is not CustomOp.__call__:
        yield "it defines __call__, so that what is bound would not run"
    if target.forward_native is CustomOp.forward_native:
        yield "it defines no forward_native, the portable fallback and oracle"
        return
    if not target.arg_names():
        yield (
            "its forward_native takes no arguments; an op computes from what it is given, and the "
            "rows of its first argument are counted"
        )
        return
    if waiting := list(waiting_problems(target.forward_native)):
        yield from (f"forward_native: {problem}" for problem in waiting)
        return
    if unknown := sorted(set(target.may_mutate) - set(target.arg_names())):
        yield f"may_mutate names {', '.join(unknown)}; its arguments are {target.arg_names()}"
    yield from _example_problems(target)


def _condition_problems(terms: KernelTerms, op: type[CustomOp]) -> Iterator[str]:
    for name, _ in terms.when.properties:
        if name not in op.property_names:
            near = difflib.get_close_matches(name, op.property_names, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            yield (
                f"its condition asks for {name}, which {op.key} does not state; {hint}"
                f"stated: {', '.join(op.property_names) or 'nothing'}"
            )


def _prepared_problems(target: type, op: type[CustomOp]) -> Iterator[str]:
    if issubclass(target, CustomOp):
        yield "it is an op class; register it with CustomOp.register_oot"
        return
    if not has_own_call(target):
        yield "its objects cannot be called; define __call__"
        return
    for problem in waiting_problems(target.__call__):
        yield f"__call__: {problem}"
    for problem in call_problems(target.__init__, ("op",), has_self=True):
        yield f"__init__: {problem}"
    for problem in call_problems(target.__call__, op.arg_names(), has_self=True):
        yield f"__call__: {problem}"


def _example_problems(target: type[CustomOp]) -> Iterator[str]:
    """Run it as a self-test would, without touching torch's random numbers."""
    try:
        with torch.inference_mode(), torch.random.fork_rng(devices=()):
            op, args = target.example()
            if type(op) is not target:
                yield f"its example() makes a {type(op).__qualname__}"
                return
            op.forward_native(*args)
            properties, num_kernel_args = op.properties(), len(op.kernel_args())
    except Exception as exc:  # noqa: BLE001 - a plugin's code; the reason is kept
        yield f"its forward_native does not work on its own example(): {reason_of(exc)}"
        return
    if wrong := sorted(k for k, v in properties.items() if not isinstance(v, int | str)):
        yield f"its properties {', '.join(wrong)} are no int, str or bool"
    if num_kernel_args != len(target.kernel_arg_names):
        yield (
            f"kernel_args() gives {num_kernel_args} values and kernel_arg_names has "
            f"{len(target.kernel_arg_names)}"
        )


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
