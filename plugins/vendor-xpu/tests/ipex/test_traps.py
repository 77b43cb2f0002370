"""What goes outside a cache when the extension is called as it is, and does not by the plugin."""

from __future__ import annotations

import signal

import pytest
import torch
from dougong_conformance.kit.generate import Draw

from dougong_xpu import ipex_library
from tests.ipex.traps import CASES, REFUSED, outcomes
from tests.shown import shows

pytestmark = pytest.mark.lane


@pytest.fixture(scope="module")
def ends() -> dict[str, int]:
    return outcomes(list(CASES))


def test_calls_of_the_extension_go_outside_the_cache_and_calls_of_the_plugin_do_not(
    ends: dict[str, int],
) -> None:
    what = "slots of -1, far slots, layout: fatal in Intel's extension, guarded in the plugin"
    with shows("beside", what, "ipex") as said:
        said.details.update(ends)
        assert ends["raw"] == 0
        for trap in ("padding", "far slot", "documented layout"):
            assert ends[f"raw, {trap}"] == -signal.SIGSEGV
        plugin = {name: end for name, end in ends.items() if name.startswith("plugin")}
        refused = plugin.pop("plugin, documented layout")
        assert refused == REFUSED
        assert set(plugin.values()) == {0}
        assert len(plugin) == 4


def test_the_extensions_other_attention_ignores_its_scale() -> None:
    # why the plugin calls `flash_attn_varlen_func` for prefill
    functional = ipex_library.functional
    draw = Draw("ipex/varlen_attention")
    q, k, v = (draw.normal(5, 2, 16) for _ in range(3))
    starts = torch.tensor([0, 5], dtype=torch.int32)
    outs = [torch.zeros_like(q), torch.zeros_like(q)]
    for out, scale in zip(outs, (1.0, 0.25), strict=True):
        functional.varlen_attention(
            q, k, v, out, starts, starts, None, 5, 5, 0.0, scale, False, True, False, None
        )
    assert outs[0].abs().sum() > 0
    assert torch.equal(*outs)
