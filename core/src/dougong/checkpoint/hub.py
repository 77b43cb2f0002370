"""Checkpoints of a Hugging Face hub, through ``huggingface_hub`` and its shared cache."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dougong import envs
from dougong.checkpoint.completeness import read_index
from dougong.checkpoint.demo import DEMO
from dougong.checkpoint.files import CheckpointFiles
from dougong.checkpoint.local import CONFIG, INDEX, choose_safetensors, group_gguf, local_files
from dougong.checkpoint.progress import is_shown
from dougong.checkpoint.unreachable import is_unreachable
from dougong.errors import CheckpointError
from dougong.log import get_logger

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_logger = get_logger(__name__)
_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    # What sentence-transformers writes beside a model that makes vectors.
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
_PUBLIC_HUB = "https://huggingface.co"


def hub_files(
    repo: str,
    selector: str | None,
    *,
    revision: str | None,
    progress: bool | None,
    needs_weights: bool = True,
) -> CheckpointFiles:
    """Fetch what is needed of a repository: config, tokenizer, and one set of weights.

    Without a network, what an earlier call fetched is used, with a note in the log.

    Args:
        repo: ``org/repo``.
        selector: File name or tag (``Q4_K_M``) of one GGUF; ``None``: the safetensors, or the only
            GGUF.
        revision: Branch, tag or commit; ``None``: the default branch.
        progress: See `resolve_reference`.
        needs_weights: See `resolve_reference`.

    Raises:
        CheckpointError: No such repository, revision or file; no weights in it, even where they are
            not needed now; no access; no room; no network and no earlier copy.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    api = HfApi(endpoint=envs.hf_endpoint())
    try:
        info = api.model_info(repo, revision=revision)
        names = [sibling.rfilename for sibling in info.siblings or ()]
        chosen = _wanted(_choose(repo, names, selector), needs_weights)
        folder = _fetch(api, repo, revision, chosen, progress)
        if chosen == [INDEX] and needs_weights:
            shards = sorted(set(read_index(folder / INDEX).values()))
            folder = _fetch(api, repo, folder.name, shards, progress)
    except CheckpointError:
        raise
    except GatedRepoError as exc:
        raise CheckpointError(
            f"{repo} asks every user to accept its terms first. Accept them on {_page(repo)}, then "
            "log in with `hf auth login` or set HF_TOKEN."
        ) from exc
    except RevisionNotFoundError as exc:
        raise CheckpointError(
            f"{repo} has no revision {revision!r}. See {_page(repo)}/tree/main for its branches "
            "and tags, or leave the revision out."
        ) from exc
    except (RepositoryNotFoundError, HFValidationError) as exc:
        raise CheckpointError(_not_found(api, repo)) from exc
    except Exception as exc:
        if is_unreachable(exc):
            folder = _cached_folder(repo, revision, exc)
            chosen = _choose_cached(repo, folder, selector, needs_weights, exc)
        elif isinstance(exc, OSError):  # the hub says no, or the disk does
            raise CheckpointError(
                f"{repo} could not be fetched from {_hub()}: {type(exc).__name__}: {exc}"
            ) from exc
        else:
            raise
    reference = f"{repo}:{selector}" if selector else repo
    path = folder / chosen[0] if _is_gguf(chosen) else folder
    return local_files(reference, path, revision=folder.name, needs_weights=needs_weights)


def _is_gguf(chosen: Sequence[str]) -> bool:
    return bool(chosen) and chosen[0].endswith(".gguf")


def _wanted(chosen: list[str], needs_weights: bool) -> list[str]:
    """Of the chosen weight files those to fetch: an index is small and says how large they are."""
    if needs_weights:
        return chosen
    if _is_gguf(chosen):
        _logger.info("%s has its configuration inside, so all of it is fetched", chosen[0])
        return chosen
    return [name for name in chosen if name == INDEX]


def _choose_cached(
    repo: str, folder: Path, selector: str | None, needs_weights: bool, cause: Exception
) -> list[str]:
    """As `_choose`, of what an earlier run fetched; that may have been the configuration alone."""
    names = _relative_names(folder)
    has_weights = any(name.endswith((".safetensors", ".gguf")) for name in names)
    if has_weights or CONFIG not in names:
        return _choose(repo, names, selector)
    if needs_weights:
        raise CheckpointError(
            f"Of {repo} this machine has the configuration and no weights, and they could not be "
            f"fetched from {_hub()} ({type(cause).__name__}: {cause}). Try again with a network, "
            "or fetch them elsewhere and name their folder."
        ) from cause
    return []


def _choose(repo: str, names: Sequence[str], selector: str | None) -> list[str]:
    """Weight files to fetch, relative to the repository's root."""
    models = group_gguf(names)
    if selector is not None:
        return _choose_gguf(repo, models, selector)
    if chosen := choose_safetensors([name for name in names if "/" not in name]):
        return chosen
    if len(models) == 1:
        return models[0]
    if models:
        raise CheckpointError(
            f"{repo} holds several GGUF models. Choose one, as in {repo}:{_shortest_tag(models)}; "
            f"there are: {', '.join(model[0] for model in models)}."
        )
    raise CheckpointError(
        f"{repo} holds neither safetensors nor GGUF files, so there are no weights to read. "
        "Look for a repository of the same model that does."
    )


def _choose_gguf(repo: str, models: Sequence[list[str]], selector: str) -> list[str]:
    tag = re.compile(rf"(^|[-_./]){re.escape(selector)}($|[-_./])", re.IGNORECASE)
    exact = [model for model in models if selector in model]
    matching = exact or [model for model in models if tag.search(model[0])]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(model[0] for model in (matching or models)) or "none"
    problem = "several GGUF models match" if matching else "no GGUF model matches"
    raise CheckpointError(f"{problem} {selector!r} in {repo}. Name one of: {listed}.")


def _shortest_tag(models: Sequence[list[str]]) -> str:
    return min((model[0] for model in models), key=len)


def _fetch(
    api: HfApi, repo: str, revision: str | None, weights: Sequence[str], progress: bool | None
) -> Path:
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: object, **kwargs: object) -> None:
            hidden = {**kwargs, "disable": not is_shown(progress)}
            super().__init__(*args, **hidden)  # type: ignore[no-untyped-call] # not annotated there

    wanted = [*weights] if _is_gguf(weights) else [*weights, *_COMPANIONS]
    folder = api.snapshot_download(
        repo,
        revision=revision,
        allow_patterns=[_literally(name) for name in wanted],
        tqdm_class=Bar,
    )
    return Path(str(folder))


def _literally(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _cached_folder(repo: str, revision: str | None, cause: Exception) -> Path:
    """The snapshot an earlier run left in the cache.

    Raises:
        CheckpointError: There is none; says what to do without a network.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            repo, revision=revision, allow_patterns=["config.json"], local_files_only=True
        )
    except (LocalEntryNotFoundError, ValueError) as exc:
        raise CheckpointError(
            f"{repo} could not be fetched from {_hub()} ({type(cause).__name__}: {cause}), and "
            "this machine has no copy of it. Without a network: fetch it elsewhere and name its "
            "folder or .gguf file; or set HF_ENDPOINT to a mirror that can be reached; 'demo' "
            "comes from the Python package index instead."
        ) from cause if isinstance(exc, LocalEntryNotFoundError) else exc
    _logger.warning(
        "hub not reached (%s); using the copy of %s fetched earlier%s",
        type(cause).__name__,
        repo,
        _unverified(revision, Path(folder).name),
    )
    return Path(folder)


def _unverified(revision: str | None, commit: str) -> str:
    """What nobody could check; a commit is what it is, a branch or a tag may have moved on."""
    if revision is None or revision == commit:
        return f" (commit {commit})"
    return f": that revision {revision!r} still is commit {commit} could not be verified"


def _relative_names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _not_found(api: HfApi, repo: str) -> str:
    org, _, name = repo.rpartition("/")
    try:
        known = [model.id for model in api.list_models(search=name, limit=50)]
        known += [model.id for model in api.list_models(author=org, limit=200)] if org else []
    except Exception:  # noqa: BLE001 - a suggestion is a courtesy; its failure changes nothing
        known = []
    nearest = difflib.get_close_matches(repo, [*known, DEMO], n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return (
        f"There is no model {repo!r} on {_hub()}, or no access to it "
        f"(private models need `hf auth login` or HF_TOKEN), and no folder or file of that name "
        f"here.{hint}"
    )


def _page(repo: str) -> str:
    return f"{_hub()}/{repo}"


def _hub() -> str:
    return envs.hf_endpoint() or _PUBLIC_HUB
