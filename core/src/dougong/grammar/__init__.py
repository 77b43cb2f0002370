"""What a text may go on with: grammars compiled, followed token by token, turned into bit masks.

Host side only, without torch. The library that knows grammars is imported when the first request
asks for one.
"""

from __future__ import annotations

from dougong.grammar.compiler import GrammarCompiler
from dougong.grammar.follower import GrammarFollower
from dougong.grammar.masks import MaskJob, MaskMaker
from dougong.grammar.trial import GrammarTrial
from dougong.grammar.vocabulary import GrammarVocabulary

__all__ = [
    "GrammarCompiler",
    "GrammarFollower",
    "GrammarTrial",
    "GrammarVocabulary",
    "MaskJob",
    "MaskMaker",
]
