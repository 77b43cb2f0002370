"""A tokenizer from GGUF metadata, which holds its vocabulary but only names its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, processors

from dougong.checkpoint import CheckpointFiles
from dougong.checkpoint.gguf_header import read_gguf_header
from dougong.engine.gguf_pretokenizers import RULES
from dougong.engine.tokenizer_parts import TokenizerParts
from dougong.errors import CheckpointError

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # values of tokenizer.ggml.token_type
_SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"


def gguf_parts(files: CheckpointFiles) -> TokenizerParts:
    """Parts from the metadata of a GGUF file.

    Stop tokens: ``eos_token_id``, ``eot_token_id`` and ``eom_token_id``, in this order.

    Raises:
        CheckpointError: No vocabulary, an unknown kind of it, or unknown splitting rules: guessing
            those would feed the model words it never saw.
    """
    metadata = read_gguf_header(files.weights[0]).metadata
    kind = metadata.get("tokenizer.ggml.model")
    tokens = metadata.get("tokenizer.ggml.tokens")
    makers = {"gpt2": _byte_level, "llama": _sentence_piece}
    if kind not in makers or not tokens:
        raise CheckpointError(
            f"{files.weights[0]} has a tokenizer of kind {kind!r}; known: {', '.join(makers)}. "
            "Use the model's safetensors with their tokenizer.json instead."
        )
    try:
        backend, adds_bos = makers[kind](metadata, tokens)
    except CheckpointError:
        raise
    except Exception as exc:  # the library raises bare Exception
        raise CheckpointError(
            f"{files.weights[0]} has an inconsistent vocabulary: {exc}. "
            "Convert the model again with a current converter."
        ) from exc
    _add_tokens(backend, metadata, tokens)
    _set_post_processor(backend, metadata, tokens, adds_bos=adds_bos)
    return _parts(backend, metadata, tokens)


def _byte_level(
    metadata: Mapping[str, Any], tokens: Sequence[str]
) -> tuple[tokenizers.Tokenizer, bool]:
    name = metadata.get("tokenizer.ggml.pre", "default")
    rules = RULES.get(name)
    if rules is None:
        raise CheckpointError(
            f"The model splits text by the rules {name!r}, which are not known here; known: "
            f"{', '.join(sorted(RULES))}. Use its safetensors with their tokenizer.json instead."
        )
    merges = [_pair(merge) for merge in metadata.get("tokenizer.ggml.merges", ())]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, ignore_merges=rules.ignore_merges)
    )
    if rules.is_nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = rules.split()
    backend.decoder = decoders.ByteLevel()
    return backend, rules.adds_bos


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _sentence_piece(
    metadata: Mapping[str, Any], tokens: Sequence[str]
) -> tuple[tokenizers.Tokenizer, bool]:
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    scores = metadata.get("tokenizer.ggml.scores", (0.0,) * len(tokens))
    types = metadata.get("tokenizer.ggml.token_type", (_NORMAL,) * len(tokens))
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocabulary,
            merges_from_scores(tokens, scores, types),
            unk_token=tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefixed = metadata.get("tokenizer.ggml.add_space_prefix", True)
    spaces = normalizers.Replace(" ", _SPACE_MARK)
    start = [normalizers.Prepend(_SPACE_MARK)] if prefixed else []
    backend.normalizer = normalizers.Sequence([*start, spaces])
    end = [decoders.Strip(content=" ", left=1)] if prefixed else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *end]
    )
    return backend, True


def merges_from_scores(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]
) -> list[tuple[str, str]]:
    """Merges that do what SentencePiece does with scores: the best-scored joined piece first.

    Every way to split a piece into two other pieces is a merge; equal scores keep the order of the
    vocabulary.
    """
    joinable = {
        token: token_id
        for token_id, token in enumerate(tokens)
        if types[token_id] in (_NORMAL, _USER_DEFINED)
    }
    ranked: list[tuple[float, int, int, str, str]] = []
    for token, token_id in joinable.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in joinable and right in joinable:
                ranked.append((-scores[token_id], joinable[left], joinable[right], left, right))
    ranked.sort(key=lambda entry: entry[:3])
    return [(left, right) for *_, left, right in ranked]


def _add_tokens(
    backend: tokenizers.Tokenizer, metadata: Mapping[str, Any], tokens: Sequence[str]
) -> None:
    types = metadata.get("tokenizer.ggml.token_type", ())
    for kind, is_special in ((_CONTROL, True), (_USER_DEFINED, False)):
        added = [
            AddedToken(token, special=is_special, normalized=False)
            for token, token_type in zip(tokens, types, strict=False)
            if token_type == kind and token
        ]
        backend.add_tokens(added)


def _set_post_processor(
    backend: tokenizers.Tokenizer,
    metadata: Mapping[str, Any],
    tokens: Sequence[str],
    *,
    adds_bos: bool,
) -> None:
    ids = {
        name: metadata[f"tokenizer.ggml.{name}_token_id"]
        for name, default in (("bos", adds_bos), ("eos", False))
        if metadata.get(f"tokenizer.ggml.add_{name}_token", default)
        and f"tokenizer.ggml.{name}_token_id" in metadata
    }
    if not ids:
        return
    before = [tokens[ids["bos"]]] if "bos" in ids else []
    after = [tokens[ids["eos"]]] if "eos" in ids else []
    backend.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        special_tokens=[(tokens[token_id], token_id) for token_id in ids.values()],
    )


def _parts(
    backend: tokenizers.Tokenizer, metadata: Mapping[str, Any], tokens: Sequence[str]
) -> TokenizerParts:
    roles = {"bos": "bos", "eos": "eos", "padding": "pad", "unknown": "unk"}
    texts = {
        f"{role}_token": tokens[metadata[f"tokenizer.ggml.{stored}_token_id"]]
        for stored, role in roles.items()
        if f"tokenizer.ggml.{stored}_token_id" in metadata
    }
    stops = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    return TokenizerParts(
        backend=backend,
        special_tokens=texts,
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        stop_token_ids=tuple(dict.fromkeys(stop for stop in stops if stop is not None)),
        chat_template=metadata.get("tokenizer.chat_template"),
    )
