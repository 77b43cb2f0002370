"""A process that compiles one wish after the other, and is ended by one that takes too much.

The library cannot be interrupted, and small schemas can keep it busy for hours (an ``allOf`` of
twenty patterns, a large ``multipleOf``). Here the system ends it: each wish has a limit of
processor time, and all of them one of memory. The model's vocabulary comes first, then wishes, each
a line of JSON; the reasons against them go back so. An empty one means that the wish can be
followed.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import IO, TYPE_CHECKING

from dougong.errors import RequestError
from dougong.grammar.compiling import compiled
from dougong.grammar.vocabulary import GrammarVocabulary, library_tokenizer
from dougong.messages import StructuredOutput

if TYPE_CHECKING:
    from llguidance import LLTokenizer

CPU_S = 1  # and up to one more: the system counts whole seconds
_MEMORY_BYTES = 4 << 30  # of addresses, of which the interpreter alone takes a part


def written(vocabulary: GrammarVocabulary) -> str:
    """A vocabulary as a line; a byte becomes the character of its number."""
    tokens = [token.decode("latin-1") for token in vocabulary.token_bytes]
    return json.dumps([tokens, sorted(vocabulary.special_ids), sorted(vocabulary.eos_ids)])


def read(line: str) -> LLTokenizer:
    """A tokenizer with the vocabulary that `written` wrote. It splits texts its own way, which is
    near enough to see what a grammar costs."""
    tokens, special_ids, eos_ids = json.loads(line)
    made: list[LLTokenizer] = []
    vocabulary = GrammarVocabulary(
        token_bytes=[token.encode("latin-1") for token in tokens],
        special_ids=frozenset(special_ids),
        eos_ids=frozenset(eos_ids),
        encode=lambda text: made[0].greedy_tokenize(text),
    )
    made.append(library_tokenizer(vocabulary))
    return made[0]


def reason_against(wish: StructuredOutput, tokenizer: LLTokenizer) -> str:
    """Why a wish cannot be followed; empty where it can."""
    try:
        compiled(wish, tokenizer)
    except RequestError as exc:
        return str(exc)
    return ""


def serve(lines: IO[str], reasons: IO[str]) -> None:
    """Answer until there are no more wishes."""
    tokenizer = read(lines.readline())
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    for line in lines:
        used = resource.getrusage(resource.RUSAGE_SELF)
        until_s = int(used.ru_utime + used.ru_stime) + 1 + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (until_s, hard))
        wish = StructuredOutput(**json.loads(line))
        reasons.write(json.dumps(reason_against(wish, tokenizer)) + "\n")
        reasons.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
