"""How a checkpoint's weights are stored, from headers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dougong.checkpoint.completeness import missing_parts, read_index
from dougong.checkpoint.files import CheckpointFiles
from dougong.checkpoint.headers import TensorHeader, tensor_headers
from dougong.checkpoint.tied_head import has_tied_head
from dougong.errors import CheckpointError

_DTYPE_OF_FORMAT = {"F64": "float32", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class FormatShare:
    """What one storage format contributes."""

    num_tensors: int
    num_parameters: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class WeightSummary:
    """How the weights are stored.

    Attributes:
        formats: Share of each storage format (``"BF16"``, ``"Q4_K"``), largest in bytes first.
        num_parameters: Elements of all tensors; a tied head is counted once.
        num_bytes: Bytes of all tensors in the files.
        main_format: The format that holds most bytes.
        torch_dtype: dtype the weights are best read as: the stored one if it is a float, else
            ``"bfloat16"``; see `dtype_for_format`.
        is_tied: See `has_tied_head`.
        format_of: Storage format by tensor name (Hugging Face naming), in file order.
    """

    formats: Mapping[str, FormatShare]
    num_parameters: int
    num_bytes: int
    main_format: str
    torch_dtype: str
    is_tied: bool
    format_of: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Tensor names in file order."""
        return tuple(self.format_of)


def read_weight_summary(files: CheckpointFiles) -> WeightSummary:
    """Summarise the weights; reads headers only.

    Raises:
        CheckpointError: A header is damaged or a file is missing.
    """
    headers = tensor_headers(files)
    if not headers:
        raise CheckpointError(
            f"{files.reference} has no weights here. Name a checkpoint with its weight files."
        )
    by_format: dict[str, list[TensorHeader]] = {}
    for header in headers:
        by_format.setdefault(header.format, []).append(header)
    shares = sorted(
        ((name, _share(group)) for name, group in by_format.items()),
        key=lambda item: item[1].num_bytes,
        reverse=True,
    )
    names = tuple(header.name for header in headers)
    main_format = shares[0][0]
    return WeightSummary(
        formats=MappingProxyType(dict(shares)),
        num_parameters=sum(share.num_parameters for _, share in shares),
        num_bytes=sum(share.num_bytes for _, share in shares),
        main_format=main_format,
        torch_dtype=dtype_for_format(main_format),
        is_tied=has_tied_head(names),
        format_of=MappingProxyType({header.name: header.format for header in headers}),
    )


def find_weight_summary(files: CheckpointFiles) -> WeightSummary | None:
    """The same; ``None`` where weight files are missing, so that a sum would be wrong.

    Raises:
        CheckpointError: A header is damaged.
    """
    if not files.weights or missing_parts(files.weights):
        return None
    if files.index is not None:
        present = {path.name for path in files.weights}
        if not present.issuperset(read_index(files.index).values()):
            return None
    return read_weight_summary(files)


def dtype_for_format(storage_format: str, default: str = "bfloat16") -> str:
    """Name of the dtype that a storage format is best computed in.

    Quantised formats answer ``default``: the models they were made from are nearly always
    bfloat16, whose range (unlike float16's) their activations need.
    """
    return _DTYPE_OF_FORMAT.get(storage_format, default)


def _share(group: list[TensorHeader]) -> FormatShare:
    return FormatShare(
        num_tensors=len(group),
        num_parameters=sum(header.num_elements for header in group),
        num_bytes=sum(header.num_bytes for header in group),
    )
