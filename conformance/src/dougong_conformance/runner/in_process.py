"""The plugin in this process, with executors beside it where a check needs processes.

For developer mode and repro: a debugger reaches the plugin. No verdict comes of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import cast

from dougong_conformance.local import LocalSubject
from dougong_conformance.runner.environment import declared_prefixes, executor_environment
from dougong_conformance.runner.executors import OwnExecutors
from dougong_conformance.runner.limits import Limits
from dougong_conformance.runner.remote import RemoteSubject
from dougong_conformance.runner.template import shared_template
from dougong_conformance.session import PluginUnderTest, Session
from dougong_conformance.subject import Ranks, Subject


class Beside:
    """Executors of a plugin that is found by its name, for a subject in this process.

    Args:
        plugin: As it was loaded here.
        limits: Deadlines.
        folder: For logs; ``None``: a temporary one.
        extension: See `OwnExecutors`.
    """

    def __init__(
        self,
        plugin: PluginUnderTest,
        *,
        limits: Limits | None = None,
        folder: Path | None = None,
        extension: str = "",
    ) -> None:
        self._limits = limits or Limits()
        self._own_folder = None if folder else tempfile.TemporaryDirectory(prefix="dougong-logs-")
        where = folder or Path(self._own_folder.name if self._own_folder else "")
        self._executors = OwnExecutors(
            plugin.name,
            executor_environment(plugin.name, _prefixes(plugin.distribution)),
            where,
            self._limits,
            import_path=plugin.import_path,
            extension=extension,
            template=None if extension else shared_template,
        )
        self._subject = RemoteSubject(self._executors, self._limits)

    def fresh(self, environment: Mapping[str, str]) -> Subject:
        """For `LocalSubject`."""
        self._subject.clock.begin_case()
        return self._subject.fresh(environment)

    def ranks(self, size: int, can_be_killed: bool) -> Ranks:
        """For `LocalSubject`."""
        self._subject.clock.begin_case()
        return self._subject.ranks(size, can_be_killed=can_be_killed)

    def end_of_case(self) -> None:
        """End what a check started."""
        self._subject.end_of_case()

    def close(self) -> None:
        """End all."""
        self._subject.close()
        self._executors.close()
        if self._own_folder is not None:
            self._own_folder.cleanup()


@contextmanager
def opened(plugin: PluginUnderTest, *, extension: str = "") -> Iterator[tuple[Subject, Beside]]:
    """A subject in this process; executors are started when a check asks for them."""
    beside = Beside(plugin, extension=extension)
    session = Session(plugin)
    subject = LocalSubject(session, make_fresh=beside.fresh, make_ranks=beside.ranks)
    try:
        yield cast("Subject", subject), beside
    finally:
        session.close()
        beside.close()


@contextmanager
def apart(
    plugin: str,
    *,
    import_path: str = "",
    environment: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Iterator[RemoteSubject]:
    """A subject in executors, whose checks are run in this process.

    Cheaper than a run, since all share one template: for judging many plugins that may end their
    process. After each case call ``end_of_case()``; a lost executor is replaced by the next call.

    Args:
        plugin: Its name.
        import_path: Folder that it is found in; empty: it is installed.
        environment: Variables beside the common ones.
        limits: Deadlines.
    """
    kept = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="dougong-logs-") as folder:
        executors = OwnExecutors(
            plugin,
            {**executor_environment(plugin, ()), **(environment or {})},
            Path(folder),
            kept,
            import_path=import_path,
            template=shared_template,
        )
        subject = RemoteSubject(executors, kept)
        try:
            yield subject
        finally:
            subject.close()
            executors.close()


def _prefixes(distribution: str) -> tuple[str, ...]:
    try:
        return declared_prefixes(metadata.distribution(distribution))
    except metadata.PackageNotFoundError:
        return ()
