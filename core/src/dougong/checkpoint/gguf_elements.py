"""How many weights lie in the bytes of a GGUF format."""

from __future__ import annotations


def elements_of_gguf(storage_format: str, num_bytes: int) -> int | None:
    """Elements of tensors that are stored in one format.

    Args:
        storage_format: As GGUF names it, in any case (``"Q4_1"``, ``"q4_1"``).
        num_bytes: Of all of them.

    Returns:
        ``None``: it is no format that the ``gguf`` library knows.
    """
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType[storage_format.upper()]
    except KeyError:
        return None
    block_elements, block_bytes = GGML_QUANT_SIZES[kind]
    return num_bytes // block_bytes * block_elements
