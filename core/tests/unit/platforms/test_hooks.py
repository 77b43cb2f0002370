from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from dougong.contracts import PluginError, RegistrationKind, StepStats
from dougong.errors import ContractError
from dougong.platforms.hooks import PluginHooks
from dougong.platforms.table import PluginRow
from tests.unit.platforms.rows import row

MARKED = """
from dougong.contracts import Mark, RegistrationKind
from dougong.contracts.registration import add_mark

def kernel(x): return x
add_mark(kernel, Mark(kind=RegistrationKind.KERNEL, key="rms_norm", name=NAME))
"""
MODEL = """
from dougong.contracts import ModelRegistration
@hookimpl
def dougong_register_models():
    return [ModelRegistration("AcmeLM", target="acme.model:AcmeLM"),
            ModelRegistration("AcmeOldLM", alias_of="AcmeLM")]
"""

STEP = StepStats(
    step_id=7,
    num_running=1,
    num_waiting=0,
    num_prefill_tokens=0,
    num_decode_tokens=1,
    seconds=0.1,
)


def _plugin(name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> PluginRow:
    module = ModuleType(f"hooks_of_{name}")
    source = f"NAME = '{name}/norm'\nfrom dougong.contracts import hookimpl\n{body}"
    exec(compile(source, module.__name__, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return row(name, hooks=module.__name__)


def test_marks_and_models_are_collected_with_their_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = PluginHooks()
    hooks.load(_plugin("acme", MARKED + MODEL, monkeypatch))
    found = [(r.mark.kind, r.mark.name, r.mark.details, r.target) for r in hooks.registrations]
    assert found[0][:2] == (RegistrationKind.KERNEL, "acme/norm")
    assert found[1:] == [
        (RegistrationKind.MODEL, "AcmeLM", None, "acme.model:AcmeLM"),
        (RegistrationKind.MODEL, "AcmeOldLM", "AcmeLM", None),
    ]
    assert {r.distribution for r in hooks.registrations} == {"acmeplat 1.0"}


def test_modules_and_objects_named_by_the_hook_are_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "acme_ops", ModuleType("acme_ops"))
    exec(f"NAME = 'acme/a'\n{MARKED}", vars(sys.modules["acme_ops"]))
    body = "@hookimpl\ndef dougong_register_ops():\n    import acme_ops\n    return [acme_ops]"
    hooks = PluginHooks()
    hooks.load(_plugin("acme", body, monkeypatch))
    assert [r.mark.name for r in hooks.registrations] == ["acme/a"]


def test_a_plugin_without_hooks_brings_nothing() -> None:
    hooks = PluginHooks()
    hooks.load(row("acme"))
    assert hooks.registrations == ()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("@hookimpl\ndef dougong_register_op(): ...", "did you mean 'dougong_register_ops'?"),
        ("def dougong_regster_ops(): ...", "did you mean 'dougong_register_ops'?"),
        ("def dougong_engine_ready(status): ...", "not marked with hookimpl"),
        ("@hookimpl\ndef dougong_engine_ready(state): ...", "asks for state; it is given status"),
        ("@hookimpl(specname='dougong_nothing')\ndef f(): ...", "dougong_nothing is no hook"),
        ("@hookimpl\ndef dougong_register_ops(): return [3]", "no module and carries no mark"),
        ("@hookimpl\ndef dougong_register_models(): return ['X']", "not a ModelRegistration"),
        (MODEL.replace('target="acme.model:AcmeLM"', "target=None"), "a target or an alias_of"),
    ],
)
def test_a_hook_that_does_not_fit_is_refused_and_leaves_nothing(
    body: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = PluginHooks()
    with pytest.raises(ContractError) as caught:
        hooks.load(_plugin("acme", MARKED + body, monkeypatch))
    assert told in str(caught.value)
    assert "acmeplat 1.0" in str(caught.value)
    assert hooks.registrations == ()
    hooks.engine_ready({})  # nobody is left who could object


def test_all_hook_problems_stand_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "def dougong_x(): ...\ndef dougong_step_done(s): ...\n@hookimpl\ndef dougong_y(): ..."
    with pytest.raises(ContractError) as caught:
        PluginHooks().load(_plugin("acme", body, monkeypatch))
    assert len(caught.value.problems) == 3


def test_a_plugin_that_fails_midway_is_undone_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = "@hookimpl\ndef dougong_engine_ready(status): status['told'].append(NAME)\n"
    late = "@hookimpl\ndef dougong_register_models(): raise OSError('boom')\n"
    hooks = PluginHooks()
    good = _plugin("good", MARKED + told, monkeypatch)
    bad = _plugin("bad", MARKED + told + late, monkeypatch)
    hooks.load(good)
    with pytest.raises(OSError, match="boom"):
        hooks.load(bad)
    assert [r.mark.name for r in hooks.registrations] == ["good/norm"]
    status: dict[str, list[str]] = {"told": []}
    hooks.engine_ready(status)
    assert status["told"] == ["good/norm"]


def test_a_collision_names_both_wheels_and_undoes_the_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooks = PluginHooks()
    hooks.load(_plugin("one", MODEL, monkeypatch))
    other = MODEL.replace("acme.model", "other.model")
    with pytest.raises(PluginError, match=r"oneplat 1\.0 and by twoplat 1\.0"):
        hooks.load(_plugin("two", MARKED + other, monkeypatch))
    assert {r.plugin for r in hooks.registrations} == {"one"}


def test_two_engines_share_no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = _plugin("acme", MARKED, monkeypatch)
    first, second = PluginHooks(), PluginHooks()
    first.load(plugin)
    assert second.registrations == ()
    second.load(plugin)
    assert first.registrations == second.registrations


def test_calls_reach_every_plugin_with_the_arguments_it_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = """
seen = []
@hookimpl
def dougong_process_start(role, rank): seen.append((role, rank))
@hookimpl
def dougong_step_done(stats): seen.append(stats.step_id)
"""
    hooks = PluginHooks()
    assert not hooks.wants_steps
    plugin = _plugin("acme", body, monkeypatch)
    hooks.load(plugin)
    assert hooks.wants_steps
    hooks.process_start("worker", 3)
    hooks.step_done(STEP)
    assert sys.modules["hooks_of_acme"].seen == [("worker", 3), 7]


def test_an_imported_module_with_our_prefix_is_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dougong_acme", ModuleType("dougong_acme"))
    PluginHooks().load(_plugin("acme", "import dougong_acme", monkeypatch))


def test_an_imported_class_of_the_core_is_not_the_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    body = MARKED + "kernel.__module__ = 'dougong.ops.norm'"
    hooks = PluginHooks()
    hooks.load(_plugin("acme", body, monkeypatch))
    assert hooks.registrations == ()


RAISING = """
@hookimpl
def dougong_process_start(role): return _fail()
@hookimpl
def dougong_engine_ready(): return _fail()
@hookimpl
def dougong_step_done(): return _fail()
def _fail(): raise {what}
"""


@pytest.mark.parametrize("what", ["KeyError('chip')", "SystemExit(0)", "PluginError('mine')"])
def test_a_call_that_raises_is_the_plugins_error_with_hook_and_wheel(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = PluginHooks()
    quiet = "@hookimpl\ndef dougong_step_done(): ...\n"
    hooks.load(_plugin("first", quiet, monkeypatch))
    body = "from dougong.contracts import PluginError\n" + RAISING.format(what=what)
    hooks.load(_plugin("bad", body, monkeypatch))
    hooks.load(_plugin("last", quiet, monkeypatch))
    calls: dict[str, Callable[[], None]] = {
        "dougong_process_start": lambda: hooks.process_start("engine", None),
        "dougong_engine_ready": lambda: hooks.engine_ready({}),
        "dougong_step_done": lambda: hooks.step_done(STEP),
    }
    for name, call in calls.items():
        with pytest.raises(PluginError) as caught:
            call()
        assert f"badplat 1.0: {name} raised {what.split('(')[0]}" in str(caught.value)
        assert caught.value.plugin == "bad"
        assert caught.value.__cause__ is not None


def test_of_a_wrapper_and_what_it_wraps_the_one_that_raised_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapper = "@hookimpl(wrapper=True)\ndef dougong_step_done():\n    return (yield)\n"
    hooks = PluginHooks()
    hooks.load(_plugin("bad", RAISING.format(what="KeyError('chip')"), monkeypatch))
    hooks.load(_plugin("around", wrapper, monkeypatch))
    with pytest.raises(PluginError, match="badplat"):
        hooks.step_done(STEP)


def test_an_interrupt_is_no_plugins_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = PluginHooks()
    hooks.load(_plugin("acme", RAISING.format(what="KeyboardInterrupt"), monkeypatch))
    with pytest.raises(KeyboardInterrupt):
        hooks.step_done(STEP)
