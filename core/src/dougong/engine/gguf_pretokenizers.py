"""How text is cut into words before BPE, by the names that GGUF files use for it.

The expressions are those the models' own tokenizer files hold; the names, llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import Regex, pre_tokenizers

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_TAIL}"
_QWEN2 = rf"{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_TAIL}"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_TAIL}"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"


@dataclass(frozen=True, slots=True)
class SplittingRules:
    """What the name in ``tokenizer.ggml.pre`` stands for.

    Attributes:
        split: Makes the pre-tokenizer.
        ignore_merges: A word that is one token whole is taken whole.
        adds_bos: Whether BOS is added when the metadata does not say.
        is_nfc: Text is brought into Unicode's composed form first.
    """

    split: Callable[[], pre_tokenizers.PreTokenizer]
    ignore_merges: bool = False
    adds_bos: bool = False
    is_nfc: bool = False


def _by_regexes(*patterns: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    def make() -> pre_tokenizers.PreTokenizer:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        return pre_tokenizers.Sequence(
            [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )

    return make


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_FAMILIES: Mapping[tuple[str, ...], SplittingRules] = {
    ("default",): SplittingRules(
        _by_regexes(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
    ),
    ("gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe", "granite-docling"): SplittingRules(
        _gpt2
    ),
    (
        "smollm",
        "starcoder",
        "refact",
        "command-r",
        "codeshell",
        "exaone",
        "minerva-7b",
    ): SplittingRules(_single_digits),
    ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"): SplittingRules(
        _by_regexes(_LLAMA3), ignore_merges=True, adds_bos=True
    ),
    ("smaug-bpe", "dbrx"): SplittingRules(_by_regexes(_LLAMA3)),
    ("qwen2", "deepseek-r1-qwen", "hunyuan", "megrez"): SplittingRules(
        _by_regexes(_QWEN2), is_nfc=True
    ),
    ("stablelm2",): SplittingRules(_by_regexes(_QWEN2)),
    ("gpt-4o", "llama4"): SplittingRules(_by_regexes(_O200K)),
}
RULES: Mapping[str, SplittingRules] = MappingProxyType(
    {name: rules for names, rules in _FAMILIES.items() for name in names}
)
