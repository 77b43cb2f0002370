"""Hooks modules of the loaded plugins: validated, collected, and undone when one fails midway."""

from __future__ import annotations

import difflib
import importlib
import inspect
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import pluggy

from dougong.contracts.hooks import HOOK_PROJECT, HookSpecs, ModelRegistration, StepStats
from dougong.contracts.registration import Registration, marked_objects, marks_of, model_mark
from dougong.errors import ContractError, PluginError
from dougong.platforms.collisions import add_registrations
from dougong.platforms.probing import caught
from dougong.platforms.table import PluginRow

_PREFIX = f"{HOOK_PROJECT}_"
_SPECS: Mapping[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(spec).parameters)[1:]
    for name, spec in vars(HookSpecs).items()
    if name.startswith(_PREFIX)
}


class PluginHooks:
    """The hooks of one engine; two engines of one process share none.

    Attributes:
        registrations: What the loaded plugins brought, in load order.
    """

    def __init__(self) -> None:
        self.registrations: tuple[Registration, ...] = ()
        self._rows: dict[str, PluginRow] = {}
        self._manager = pluggy.PluginManager(HOOK_PROJECT)
        self._manager.add_hookspecs(HookSpecs)

    def load(self, row: PluginRow) -> None:
        """Import a plugin's hooks module and take over what it registers; all of it or nothing.

        Args:
            row: Of a plugin whose descriptor was read. One without a hooks module brings nothing.

        Raises:
            ContractError: Hooks that do not fit, or names that another wheel claims.
            BaseException: Whatever the module raises.
        """
        target = row.plugin.hooks if row.plugin else None
        if target is None:
            return
        module = importlib.import_module(target)
        subject = f"hooks module {target} of {row.wheel}"
        if problems := tuple(_hook_problems(module)):
            raise ContractError(subject, problems, plugin=row.name)
        try:
            self._manager.register(module, name=row.name)
            self._manager.check_pending()
            added = [*self._marked(module, row, subject), *self._models(module, row, subject)]
            self.registrations = add_registrations(self.registrations, added, plugin=row.name)
            self._rows[row.name] = row
        except pluggy.PluginValidationError as error:
            self._forget(module)
            raise ContractError(subject, (str(error),), plugin=row.name) from error
        except BaseException:
            self._forget(module)
            raise

    def process_start(self, role: str, rank: int | None) -> None:
        """Tell every plugin that this process begins; see `HookSpecs`.

        Raises:
            PluginError: A plugin raised; so do the other calls below.
        """
        self._call("dougong_process_start", role=role, rank=rank)

    def engine_ready(self, status: Mapping[str, Any]) -> None:
        """Tell every plugin that warm-up is over."""
        self._call("dougong_engine_ready", status=status)

    @property
    def wants_steps(self) -> bool:
        """Whether anybody implements the hook after each step; ask once, before the first one."""
        return bool(self._manager.hook.dougong_step_done.get_hookimpls())

    def step_done(self, stats: StepStats) -> None:
        """Tell every plugin that a step is done."""
        self._call("dougong_step_done", stats=stats)

    def _call(self, name: str, **arguments: Any) -> None:
        caller = getattr(self._manager.hook, name)
        try:
            caller(**arguments)
        except BaseException as exc:
            found = caught(exc)
            row = self._rows.get(_raiser(exc, caller.get_hookimpls()))
            raise PluginError(
                f"{row.wheel if row else 'a plugin'}: {name} raised {found.reason}. "
                "A hook must not raise; report this to the plugin's vendor, or uninstall it.",
                plugin=row.name if row else None,
            ) from exc

    def _forget(self, module: ModuleType) -> None:
        if self._manager.is_registered(module):
            self._manager.unregister(module)

    def _answers(self, module: ModuleType, hook: str) -> Iterator[Any]:
        """Items that this one plugin's implementation of a hook returns."""
        others = [other for other in self._manager.get_plugins() if other is not module]
        for answer in self._manager.subset_hook_caller(hook, others)():
            yield from answer

    def _marked(self, module: ModuleType, row: PluginRow, subject: str) -> Iterator[Registration]:
        namespaces: list[dict[str, Any]] = [vars(module)]
        for hook in ("dougong_register_ops", "dougong_register_quantization"):
            for item in self._answers(module, hook):
                if not isinstance(item, ModuleType) and not marks_of(item):
                    problem = f"{hook} gives {item!r}, which is no module and carries no mark"
                    raise ContractError(subject, (problem,), plugin=row.name)
                namespaces.append(vars(item) if isinstance(item, ModuleType) else {"": item})
        for target, mark in marked_objects(namespaces):
            if not _is_the_cores(target):
                yield Registration(
                    mark=mark, target=target, plugin=row.name, distribution=row.wheel
                )

    def _models(self, module: ModuleType, row: PluginRow, subject: str) -> Iterator[Registration]:
        for item in self._answers(module, "dougong_register_models"):
            if not isinstance(item, ModelRegistration):
                problem = f"dougong_register_models gives {item!r}, not a ModelRegistration"
                raise ContractError(subject, (problem,), plugin=row.name)
            if (item.target is None) == (item.alias_of is None):
                problem = f"{item.architecture} needs a target or an alias_of, and not both"
                raise ContractError(subject, (problem,), plugin=row.name)
            yield Registration(
                mark=model_mark(item.architecture, alias_of=item.alias_of),
                target=item.target,
                plugin=row.name,
                distribution=row.wheel,
            )


def _raiser(exc: BaseException, implementations: Iterable[pluggy.HookImpl]) -> str:
    """Name of the plugin whose implementation ``exc`` came out of; empty: none was entered.

    Of several on the way out (one may wrap the others) the innermost is where it began.
    """
    # By identity: equal code of two plugins compares equal.
    names = {
        id(code): implementation.plugin_name
        for implementation in implementations
        if (code := getattr(implementation.function, "__code__", None))
    }
    codes = [id(frame.f_code) for frame, _ in traceback.walk_tb(exc.__traceback__)]
    return next((names[code] for code in reversed(codes) if code in names), "")


def _is_the_cores(target: object) -> bool:
    """A hooks module that imports a marked class of the core does not bring it."""
    owner = getattr(target, "__module__", "")
    return owner.startswith("dougong.") and not owner.startswith("dougong.cpu")


def _hook_problems(module: ModuleType) -> Iterable[str]:
    """What pluggy would pass over in silence, or report one at a time."""
    for name, member in vars(module).items():
        marking = getattr(member, f"{_PREFIX}impl", None)
        if not isinstance(member, FunctionType) or (marking is None and name[:8] != _PREFIX):
            continue
        name = (marking or {}).get("specname") or name
        if name not in _SPECS:
            near = difflib.get_close_matches(name, _SPECS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"hooks are {', '.join(_SPECS)}"
            yield f"{name} is no hook: {hint}"
        elif marking is None:
            yield f"{name} is not marked with hookimpl, so nobody would call it"
        elif unknown := [p for p in inspect.signature(member).parameters if p not in _SPECS[name]]:
            yield f"{name} asks for {', '.join(unknown)}; it is given {_arguments(name)}"


def _arguments(name: str) -> str:
    return ", ".join(_SPECS[name]) or "nothing"
