"""Stub platforms with attention backends of their own: the reference one within other limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.stub_plugins import PLATFORM, Stub, count_calls

REFERENCE = "reference/torch"

_HEAD = """
from dataclasses import replace
from itertools import pairwise

from dougong.contracts import AttentionLimits, AttentionPhase
from dougong.reference import ReferenceAttentionBackend
"""

_BACKEND = """

class {cls}(ReferenceAttentionBackend):
    name = {name!r}
    limits = AttentionLimits({limits})

    def kv_layout(self, spec):
        return replace(super().kv_layout(spec), {layout})

    def make_impl(self, request, scale):
        impl = super().make_impl(request, scale)
        forward = impl.forward

        def counted(q, k, v, kv_cache, metadata, out):
            is_decode = all(end - start == 1 for start, end in pairwise(metadata.starts))
            count("attention {name} " + ("decode" if is_decode else "prefill"))
            if {error!r}:
                raise RuntimeError({error!r})
            forward(q, k, v, kv_cache, metadata, out)

        impl.forward = counted
        return impl
"""

_PLATFORM = """
    def claims(self, arch):
        return Claims(arch=arch, {claims})

    def get_attn_backends(self):
        return {backends}
"""
_DEFAULT_CLAIMS = 'dtypes=("float32",), kv_dtypes=("float32",)'


@dataclass(frozen=True, slots=True, kw_only=True)
class StubBackend:
    """The reference backend under another name, which counts its calls.

    Attributes:
        name: Namespaced.
        limits: Arguments of `AttentionLimits`, as source.
        layout: Changes to the reference layout, as arguments in source.
        error: Raised at each call; empty: none.
    """

    name: str
    limits: str = 'dtypes=frozenset({"float32"})'
    layout: str = ""
    error: str = ""

    @property
    def cls(self) -> str:
        """Name of its class."""
        return "".join(part.capitalize() for part in self.name.split("/"))

    def source(self) -> str:
        """Its class."""
        return _BACKEND.format(
            cls=self.cls, name=self.name, limits=self.limits, layout=self.layout, error=self.error
        )


def attention_platform(
    name: str, *backends: StubBackend, claims: str = _DEFAULT_CLAIMS, with_reference: bool = True
) -> Stub:
    """A platform whose attention backends are these, in this order, then the reference one.

    Args:
        name: Of the platform.
        backends: Preferred first.
        claims: Arguments of `Claims`, as source.
        with_reference: Plain torch comes last; otherwise it is not offered.
    """
    known = [f"{one.name!r}: '{{package}}.hooks:{one.cls}'" for one in backends]
    if with_reference:
        known.append(f"{REFERENCE!r}: 'dougong.reference:ReferenceAttentionBackend'")
    body = _PLATFORM.format(claims=claims, backends="{{" + ", ".join(known) + "}}")
    hooks = _HEAD + "".join(one.source() for one in backends)
    return Stub(
        distribution=f"dougong-{name}", name=name, platform_body=PLATFORM + body, hooks=hooks
    )


def attention_calls(file: Path) -> set[str]:
    """``"NAME prefill"`` and ``"NAME decode"`` of the stub backends that ran."""
    prefix = "attention "
    return {what.removeprefix(prefix) for what in count_calls(file) if what.startswith(prefix)}
