"""What a backend makes, held against the contract when it is first made, before any step."""

from __future__ import annotations

from dougong.contracts import AttentionBackend, AttentionImpl, AttentionMetadataBuilder
from dougong.platforms.contract_check import check_class

_NOT_MADE = object()  # None would be an answer, and a wrong one


def check_attention_parts(
    backend: AttentionBackend, impl: object = _NOT_MADE, builder: object = _NOT_MADE
) -> None:
    """Check what `make_impl` and `make_builder` of a backend returned; both, or the one given.

    Raises:
        ContractError: It is of a class that does not fit; every problem is listed.
    """
    made = (("make_impl", impl, AttentionImpl), ("make_builder", builder, AttentionMetadataBuilder))
    for maker, part, contract in made:
        if part is not _NOT_MADE:
            cls = type(part)
            subject = f"{cls.__module__}:{cls.__qualname__}, which {maker} of attention backend "
            check_class(cls, contract, subject=f"{subject}{backend.name!r} returned")
