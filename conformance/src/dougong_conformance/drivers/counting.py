"""How often each implementation of the plugin runs: counted where it is called."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dougong.contracts import Platform
from dougong.contracts.registration import Registration, RegistrationKind


def counted(
    registrations: tuple[Registration, ...], counts: Counter[str]
) -> tuple[Registration, ...]:
    """The same registrations, each call noted as ``"key name"``."""
    return tuple(_counted(one, counts) for one in registrations)


def _counted(registration: Registration, counts: Counter[str]) -> Registration:
    mark, target = registration.mark, registration.target
    if mark.kind not in (RegistrationKind.KERNEL, RegistrationKind.OP_CLASS):
        return registration
    called = f"{mark.key} {mark.name or f'{registration.plugin}/{target.__name__}'}"
    if not isinstance(target, type):

        @functools.wraps(target)
        def noted(*args: Any) -> Any:
            counts[called] += 1
            return target(*args)

        return replace(registration, target=noted)
    method = "forward_oot" if mark.kind is RegistrationKind.OP_CLASS else "__call__"
    good: Any = getattr(target, method)

    @functools.wraps(good)
    def noted_method(self: Any, *args: Any) -> Any:
        counts[called] += 1
        return good(self, *args)

    members = {method: noted_method, "__module__": target.__module__}
    return replace(registration, target=type(target)(target.__name__, (target,), members))


@contextmanager
def counting_backends(platform: Platform, counts: Counter[str]) -> Iterator[None]:
    """Inside, forwards of implementations that a platform's backends make are noted by backend."""
    from dougong.attention.loading import load_backends

    classes = {name: type(one) for name, one in load_backends(platform).items()}
    changed: list[tuple[Any, Any, bool]] = []
    for name, cls in classes.items():
        changed.append((cls, cls.make_impl, "make_impl" in vars(cls)))
        cls.make_impl = _noting(cls.make_impl, name, counts)  # type: ignore[method-assign]  # undone
    try:
        yield
    finally:
        for cls, make_impl, is_own in changed:
            if is_own:
                cls.make_impl = make_impl
            else:
                del cls.make_impl


def _noting(make_impl: Any, name: str, counts: Counter[str]) -> Any:
    @functools.wraps(make_impl)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        impl = make_impl(self, *args, **kwargs)
        forward = impl.forward

        @functools.wraps(forward)
        def noted(*given: Any, **named: Any) -> Any:
            counts[name] += 1
            return forward(*given, **named)

        impl.forward = noted
        return impl

    return made
