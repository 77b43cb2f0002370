"""The published list of operators is what a run gives now."""

from __future__ import annotations

from tools.op_surface import Surface, count, declared, differences, document


def test_the_published_surface_is_what_a_run_gives_now() -> None:
    assert differences(count()) == [], "python -m tools.op_surface writes it anew"


def test_an_operator_that_is_new_is_told() -> None:
    surface = Surface(first={"aten::brand_new": "each op on a small example"})
    assert "| `aten::brand_new` | 1 | start |" in document(surface)
    assert declared(surface).splitlines()[1:] == ["aten::brand_new"]
    assert "op_surface.md: new: | `aten::brand_new` | 1 | start |" in differences(surface)
