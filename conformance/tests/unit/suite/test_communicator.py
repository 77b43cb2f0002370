"""The checks on the CPU platform and on its mutants; ranks are threads."""

from __future__ import annotations

import importlib

import pytest

from dougong_conformance.check import all_checks
from dougong_conformance.judging import Judge
from dougong_conformance.local import LocalSubject
from dougong_conformance.outcomes import CheckFailed
from dougong_conformance.requirements import all_requirements
from dougong_conformance.runner.thread_ranks import thread_ranks
from dougong_conformance.selftest.mutant import defined
from dougong_conformance.session import PluginUnderTest, Session, load_plugin

importlib.import_module("dougong_conformance.selftest.mutants.communicator")
PROFILE = "communicator"
REQUIREMENTS = [one for one in all_requirements().values() if one.profile == PROFILE]
IDS = [id for one in REQUIREMENTS for id in one.kills]
IN_THREADS = [
    id
    for id in IDS
    if id != "C24" and not defined(id).needs_process  # C24 needs streams
]


@pytest.fixture(scope="module")
def cpu() -> PluginUnderTest:
    return load_plugin("cpu")


def _run(plugin: PluginUnderTest, requirement: str) -> None:
    one = all_checks()[requirement]
    subject = LocalSubject(Session(plugin), make_ranks=thread_ranks(plugin))
    one.run(subject, Judge(), *(["float32"] if one.per_dtype else []))


def test_each_requirement_has_a_check_and_kills_mutants_that_name_it() -> None:
    checks = {id for id, one in all_checks().items() if one.profile == PROFILE}
    assert {one.id for one in REQUIREMENTS} == checks
    for one in REQUIREMENTS:
        assert one.kills
        assert {defined(id).killer for id in one.kills} == {one.id}


@pytest.mark.parametrize("requirement", sorted({defined(id).killer for id in IN_THREADS}))
def test_the_cpu_platform_meets_the_requirement(cpu: PluginUnderTest, requirement: str) -> None:
    _run(cpu, requirement)


@pytest.mark.parametrize("id", IN_THREADS)
def test_the_named_check_rejects_the_mutant(cpu: PluginUnderTest, id: str) -> None:
    one = defined(id)
    with pytest.raises(CheckFailed):
        _run(one.apply(cpu), one.killer)
