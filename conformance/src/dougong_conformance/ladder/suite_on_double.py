"""The suite's checks on an installed double, in this process: fast, and no verdict of a run.

A run with a report is ``python -m dougong_conformance.ladder.run_on_double``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from dougong.platforms.entry_points import find_entry_points

from dougong_conformance.check import all_checks, cases_of
from dougong_conformance.outcomes import BAD
from dougong_conformance.runner.cases import CaseEnd, run_case
from dougong_conformance.runner.in_process import opened
from dougong_conformance.session import PluginUnderTest, load_plugin

PROFILES = ("ops", "attention", "kv")
"""What a double with a replaced runtime can say something about, and quickly."""


def judge(
    name: str,
    profiles: Collection[str] = PROFILES,
    *,
    chosen: Callable[[str], bool] = lambda check: True,
    dtypes: Collection[str] = (),
) -> tuple[CaseEnd, ...]:
    """Run the checks of some profiles on an installed double.

    Args:
        name: As `installed_double` gave it.
        profiles: Names of profiles.
        chosen: Of those, the checks that it says yes to, by id.
        dtypes: Only these of the claimed ones; empty: all.

    Returns:
        How every case ended, by id.
    """
    with opened(plugin_of(name)) as (subject, beside):
        able = subject.facts.dtypes
        wanted = tuple(one for one in able if one in dtypes) if dtypes else able
        ends = []
        for id, one in all_checks().items():
            if one.profile in profiles and chosen(id):
                for case in cases_of(one, wanted):
                    ends.append(run_case(case, subject))
                    beside.end_of_case()
        return tuple(ends)


def failures(ends: Collection[CaseEnd]) -> tuple[str, ...]:
    """Cases that did not go well, a sentence each."""
    return tuple(
        f"{end.id} {end.outcome.value}: {end.reason}" for end in ends if end.outcome in BAD
    )


def plugin_of(name: str) -> PluginUnderTest:
    """An installed double as the suite takes it: with the folder that its children need."""
    point = next(one for one in find_entry_points() if one.name == name)
    return replace(load_plugin(name), import_path=str(Path(point.path).parent))
