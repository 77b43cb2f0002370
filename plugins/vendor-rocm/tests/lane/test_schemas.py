"""L1: AITER's real schemas, registered in torch's dispatcher, are the golden ones and take the
calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dougong_conformance.ladder import calls, golden

from dougong_rocm import library
from dougong_rocm.installation import version_of
from tests.lane.conftest import Imported
from tests.lane.stand_in_rocm import ARCH
from tests.references.install import GOLDEN
from tests.rungs.test_signatures import function_problems, functions_called, ops_called
from tests.shown import shows
from tools import function_signatures

pytestmark = pytest.mark.lane


def test_every_call_binds_to_the_golden_files() -> None:
    with shows("L0", "every call binds to the golden files") as shown:
        found = (*ops_called(), *functions_called())
        golden_file = golden.read_golden(GOLDEN)
        assert calls.bind(ops_called(), golden_file, ("aiter",)) == ()
        assert function_problems(functions_called()) == []
        shown.what = (
            f"{len(found)} calls in the source, of {len(library.CALLS)} kinds, bind to the "
            f"{len(golden_file.schemas)} golden schemas and the golden Python signatures of "
            "amd-aiter"
        )


def test_the_real_schemas_take_every_call(aiter: Imported) -> None:
    with shows("L1", "the schemas that AITER registers are the golden ones") as shown:
        now = aiter.schemas
        assert golden.compare(golden.read_golden(GOLDEN), now) == ()
        assert function_signatures.read_source(aiter.folder) == function_signatures.read_golden()
        live = golden.Golden(now, "", name="the dispatcher")
        found = ops_called()
        assert calls.bind(found, live, ("aiter",)) == ()
        assert function_problems(functions_called()) == []
        report = library.bind([ARCH])
        (broken,) = report.missing
        assert broken == library.library_of(library.PAGED_ATTENTION)
        assert "cannot choose what to build for a paged cache" in report.missing[broken]
        assert len(report.loaded) == len(library.CALLS) - 1
        shown.what = (
            f"the real amd-aiter {version_of(library.DISTRIBUTION)} imports beside CPU "
            f"torch: its {len(now)} schemas and {len(function_signatures.wanted())} Python "
            f"signatures are the golden ones, and all {len(library.CALLS)} calls bind to them; "
            f"{broken} is reported missing all the same, since this release fails as it chooses "
            "what to build for it"
        )
        shown.details = {"schemas": len(now), "calls": sorted(library.CALLS)}


def test_a_planted_drift_is_found(aiter: Imported) -> None:
    now = aiter.schemas
    name = "aiter::silu_and_mul"
    changed = {
        **now,
        name: now[name].replace("Tensor(a1!) input", "Tensor(a1!) input, float limit"),
    }
    gone = {op: text for op, text in changed.items() if op != "aiter::rms_norm"}
    drift = golden.compare(golden.read_golden(GOLDEN), gone)
    assert len(drift) == 2
    assert any("limit" in one for one in drift)
    assert any("aiter::rms_norm is gone" in one for one in drift)


def test_a_planted_drift_of_a_function_is_found(aiter: Imported, tmp_path: Path) -> None:
    source = aiter.folder
    for module in function_signatures.wanted().values():
        relative = f"{module.replace('.', '/')}.py"
        place = tmp_path / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        text = (source / relative).read_text("utf-8")
        place.write_text(
            text.replace("def shuffle_weight(x:", "def shuffle_weight(weight:"), "utf-8"
        )
    now = function_signatures.read_source(tmp_path)
    differs = [
        name for name, text in function_signatures.read_golden().items() if now[name] != text
    ]
    assert differs == ["aiter.ops.shuffle.shuffle_weight"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((torch.zeros(2, 8),), "missing|weight"),
        ((torch.zeros(2, 8), torch.zeros(8), "x"), "epsilon"),
    ],
)
def test_the_dispatcher_refuses_a_planted_wrong_call(
    aiter: Imported, arguments: tuple[object, ...], told: str
) -> None:
    with pytest.raises(RuntimeError, match=told):
        torch.ops.aiter.rms_norm(*arguments)
