"""How much one request's grammar may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLParserLimits

# A lexer state takes one to two kilobytes: at most some tens of megabytes for one grammar.
_MAX_LEXER_STATES = 25_000
# With the library's own limits the mask of "(a{1000}){1000}" took a second, and every other request
# of the step would wait for it; with these 40 ms. Real schemas take a small part of either.
_FUEL_TO_COMPILE = 100_000
_FUEL_PER_MASK = 50_000


def parser_limits() -> LLParserLimits:
    """Limits of the compiler and of every mask; errors come without the grammar in them."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=_FUEL_TO_COMPILE,
        step_lexer_fuel=_FUEL_PER_MASK,
        max_lexer_states=_MAX_LEXER_STATES,
        verbose_errors=False,
    )
