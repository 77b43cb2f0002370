"""From a class and a checkpoint to a model that can run: build, compare names, fill each tensor."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from dougong.checkpoint import TensorSource, has_tied_head, loading_progress
from dougong.checkpoint.renamed_tensors import named_as_wanted
from dougong.contracts import StoredWeights
from dougong.errors import CheckpointError, PluginError
from dougong.models.loadable import LoadableModel, WeightTarget
from dougong.ops import Embedding, GateUpAct, Linear, LMHead

M = TypeVar("M", bound=LoadableModel)

# Tables that older checkpoints store although they follow from the config.
_DERIVED = re.compile(r"(^|\.)rotary_emb\.(inv_freq|cos_cached|sin_cached)$")


@dataclass(frozen=True, slots=True)
class WeightLoadReport:
    """What was loaded.

    Attributes:
        num_tensors: Tensors copied into the model.
        file_bytes: Their bytes in the files.
        model_bytes: Bytes of the model's parameters, a tied head counted once.
        formats: Storage format → tensors stored so.
        ignored: Names that were left alone: they follow from the config, or belong to another use
            of the model.
        seconds: Wall time of reading, converting and copying.
    """

    num_tensors: int
    file_bytes: int
    model_bytes: int
    formats: Mapping[str, int]
    ignored: tuple[str, ...]
    seconds: float


def build_model(
    cls: type[M],
    hf_config: Mapping[str, Any],
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int | None = None,
) -> M:
    """Make a model with unfilled parameters on ``device``.

    The config's ``tie_word_embeddings`` is obeyed; `load_model` asks the files first.

    Raises:
        ConfigError: As the class's own.
    """
    with torch.device(device):
        model = cls(hf_config, dtype, max_model_len)
    return model.eval()


def load_weights(
    model: LoadableModel, source: TensorSource, progress: bool | None = None
) -> WeightLoadReport:
    """Copy every tensor into its place, converted to the model's dtype.

    One tensor is in memory beside the model at a time, and none where the parameter lies on the
    host: the source then fills it directly. Names and shapes are compared first, from the headers.

    Args:
        model: As `build_model` makes it.
        source: The checkpoint.
        progress: Draw a bar on stderr; ``None``: if stderr is a terminal.

    Raises:
        CheckpointError: Tensors are missing, of another shape, or of no use to the model; all are
            named, and nothing was read. Or the files failed while being read.
        PluginError: The model has parameters that no tensor fills.
    """
    started_s = time.monotonic()
    targets = model.weight_targets()
    source = named_as_wanted(source, targets, model.base_prefix)
    _check_parameters_are_targets(model, targets)
    _check_names_and_shapes(targets, source, _ignored(model, targets, source))
    for name in loading_progress(source, progress):
        if name in targets:
            _fill(targets[name], source, name)
    return WeightLoadReport(
        num_tensors=len(targets),
        file_bytes=sum(source.num_bytes(name) for name in targets),
        model_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        formats=dict(Counter(source.format(name) for name in targets)),
        ignored=_ignored(model, targets, source),
        seconds=time.monotonic() - started_s,
    )


def load_model(
    cls: type[M],
    hf_config: Mapping[str, Any],
    dtype: torch.dtype,
    device: torch.device,
    source: TensorSource,
    *,
    max_model_len: int | None = None,
    progress: bool | None = None,
    stored: Iterable[StoredWeights] = (),
) -> tuple[M, WeightLoadReport]:
    """Build a model whose head is tied exactly if the files hold no head, and fill it.

    The rule for tied heads is `dougong.checkpoint.has_tied_head`. Weights of ops in ``stored`` stay
    as the files have them.

    Raises:
        ConfigError: As `build_model`.
        CheckpointError: As `load_weights`.
        PluginError: As `load_weights`.
    """
    config = {**hf_config, "tie_word_embeddings": has_tied_head(source.names())}
    model = build_model(cls, config, dtype, device, max_model_len)
    _keep_stored(model, stored)
    return model, load_weights(model, source, progress)


def _keep_stored(model: LoadableModel, stored: Iterable[StoredWeights]) -> None:
    for one in stored:
        for path in one.paths:
            op = model.get_submodule(path)
            if not isinstance(op, (Embedding, GateUpAct, Linear, LMHead)):
                raise PluginError(
                    f"the plan lets the weight of {path} stay in {one.format}, and a "
                    f"{type(op).__name__} has none that could"
                )
            op.store_as(one.format)


def _fill(target: WeightTarget, source: TensorSource, name: str) -> None:
    view = target.view
    with torch.inference_mode():
        if view.dtype is torch.uint8:  # it stays as it is stored
            source.read_stored_into(name, view)
        elif view.is_cpu:
            source.read_into(name, view)
        else:
            view.copy_(source.read(name, view.dtype))
        if target.added:
            view.add_(target.added)


def _ignored(
    model: LoadableModel, targets: Mapping[str, WeightTarget], source: TensorSource
) -> tuple[str, ...]:
    """Tensors that the model does not need, and may be there all the same."""
    return tuple(
        name
        for name in source.names()
        if name not in targets
        and (
            _DERIVED.search(name)
            or name.removeprefix(model.base_prefix).startswith(model.unused_tensors)
        )
    )


def _check_names_and_shapes(
    targets: Mapping[str, WeightTarget], source: TensorSource, ignored: Collection[str]
) -> None:
    names = frozenset(source.names())
    missing = [f"{name} is missing" for name in targets if name not in names]
    unexpected = [
        f"{name} has no place in this model"
        for name in source.names()
        if name not in targets and name not in ignored
    ]
    misshapen = [
        f"{name} has shape {found}, the config asks for {tuple(target.view.shape)}"
        for name, target in targets.items()
        if name in names and (found := _shape_in(source, name, target)) != tuple(target.view.shape)
    ]
    if problems := (*missing, *misshapen, *unexpected):
        raise CheckpointError(
            "The weights do not fit the model that the config describes; nothing was loaded. "
            "Config and weights must come from one checkpoint.",
            problems,
        )


def _shape_in(source: TensorSource, name: str, target: WeightTarget) -> tuple[int, ...]:
    """As the target will have it: of one that stays as stored, in bytes."""
    shape = source.shape(name)
    if target.parameter.dtype is not torch.uint8:
        return shape
    return (*shape[:-1], source.stored_row_bytes(name))


def _check_parameters_are_targets(
    model: LoadableModel, targets: Mapping[str, WeightTarget]
) -> None:
    filled: Counter[int] = Counter()
    for target in targets.values():
        filled[id(target.parameter)] += target.view.numel()
    left = [
        name
        for name, parameter in model.named_parameters()
        if filled[id(parameter)] != parameter.numel()
    ]
    if left:
        raise PluginError(
            f"{type(model).__module__}.{type(model).__qualname__}: weight_targets() does not fill "
            f"{', '.join(left)} exactly once; every row of every parameter needs one tensor."
        )
