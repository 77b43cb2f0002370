"""Developer mode for pytest: options, cases as parameters, and a notice that it proves nothing.

Nothing here has a part in a verdict: runs that count never start pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dougong_conformance.check import Case
    from dougong_conformance.judging import Judge
    from dougong_conformance.runner.in_process import Beside
    from dougong_conformance.subject import Subject

NOTICE = "DEVELOPER MODE: not a conformance result"
_PARAMETER = "conformance_case"
_run_key = pytest.StashKey["DeveloperRun"]()


class DeveloperRun:
    """The plugin in this process.

    Args:
        subject: For the checks.
        beside: Its further processes.
        dtypes: That it claims.
    """

    def __init__(self, subject: Subject, beside: Beside, dtypes: tuple[str, ...]) -> None:
        self._subject = subject
        self._beside = beside
        self.dtypes = dtypes

    def run(self, case: Case) -> None:
        """Run one case; what was measured is printed, and outcomes become those of pytest.

        Raises:
            CheckFailed, SubjectRaised: As the check found it.
        """
        from dougong_conformance.judging import Judge
        from dougong_conformance.outcomes import NotClaimed, NotRun

        judge = Judge()
        arguments = (self._subject, judge, case.dtype) if case.dtype else (self._subject, judge)
        try:
            case.check.run(*arguments)
        except (NotClaimed, NotRun) as exc:
            pytest.skip(f"{exc.outcome}: {exc.reason}")
        finally:
            _print(judge)
            self._beside.end_of_case()


def _print(judge: Judge) -> None:
    for one in judge.metrics:
        limit = "" if one.limit is None else f" (at most {one.limit:g})"
        print(f"{one.name}: {one.value:.4g}{limit}")  # noqa: T201 - pytest shows it with a failure
    for warning in judge.warnings:
        print(f"warning: {warning}")  # noqa: T201


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--plugin``."""
    group = parser.getgroup("dougong-conformance")
    group.addoption("--plugin", metavar="NAME", help="Platform plugin of Dougong to develop.")


def pytest_report_header(config: pytest.Config) -> str | None:
    """The notice, where it applies."""
    return f"dougong-conformance: {NOTICE}" if config.getoption("--plugin") else None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The notice again, below everything."""
    if config.getoption("--plugin"):
        terminalreporter.write_line(NOTICE, yellow=True, bold=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cases of the plugin as parameters, with their own ids."""
    if _PARAMETER not in metafunc.fixturenames:
        return
    from dougong_conformance.runner.judge_main import all_cases, load_suite

    checks, requirements = load_suite("")
    dtypes = _opened(metafunc.config).dtypes
    cases = list(all_cases(checks, requirements, dtypes))
    metafunc.parametrize(_PARAMETER, cases, ids=[case.id for case in cases])


@pytest.fixture(scope="session")
def conformance_run(pytestconfig: pytest.Config) -> DeveloperRun:
    """The plugin, loaded once."""
    return _opened(pytestconfig)


def _opened(config: pytest.Config) -> DeveloperRun:
    if _run_key not in config.stash:
        config.stash[_run_key] = _open(config)
    return config.stash[_run_key]


def _open(config: pytest.Config) -> DeveloperRun:
    from dougong_conformance.runner.in_process import opened
    from dougong_conformance.session import load_plugin

    name = config.getoption("--plugin")
    if not name:
        raise pytest.UsageError("developer mode needs --plugin NAME")
    manager = opened(load_plugin(name))
    subject, beside = manager.__enter__()

    def close() -> None:
        manager.__exit__(None, None, None)

    config.add_cleanup(close)
    return DeveloperRun(subject, beside, subject.facts.dtypes)
