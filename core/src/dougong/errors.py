"""Every error Dougong raises on purpose, sorted by who can act on it.

```
DougongError
├── ConfigError            the user, before the start
│   ├── CheckpointError    the user: the model's files are missing, incomplete or unknown
│   └── PlatformSelectionError   the user: no platform, or more than one, fits what was asked
├── RequestError           the client (4xx): this request can never be served
├── CapacityError          the client, later (429/503): nothing is wrong, there is no room now
├── PluginError            the vendor: a plugin broke its contract
│   ├── ContractError      the vendor: found at load, all problems in one message
│   └── ImplementationError   the vendor: a kernel or backend failed at its first use
├── UnsupportedError       the caller: something was used that was never claimed
├── EngineDeadError        nobody: the engine stopped; its cause is chained
└── DeviceError            nobody: restart the worker
    ├── OutOfDeviceMemory
    ├── DeviceLost
    ├── KernelFault
    ├── CommunicatorTimeout
    └── PeerLost
```

A message says what happened, why, and what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DougongError(Exception):
    """Root of all errors raised on purpose. Survives a trip between processes with every field."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Message and fields as they are, without calling the class again."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[DougongError], args: tuple[Any, ...], fields: dict[str, Any]
) -> DougongError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class ConfigError(DougongError):
    """The user's configuration cannot work; raised before anything costly has begun.

    Args:
        message: What, why, what instead.
        problems: When several things are wrong, one sentence each; they are shown together.
    """

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        """Join ``problems`` under ``message``."""
        self.problems = problems
        super().__init__("\n".join([message, *(f"  - {problem}" for problem in problems)]))


class CheckpointError(ConfigError):
    """The model's files are missing, incomplete, damaged or of an unknown kind."""


class PlatformSelectionError(ConfigError):
    """No platform, or more than one, fits what was asked."""


class RequestError(DougongError):
    """This request can never be served as it stands; other requests are not affected.

    Args:
        message: What, why, what instead.
        field: The request's field at fault, as the client spelt it.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        """Keep ``field`` beside the message."""
        self.field = field
        super().__init__(message)


class CapacityError(DougongError):
    """There is no room now; the same request may succeed later."""


class PluginError(DougongError):
    """A plugin broke its contract; its vendor can mend it.

    Args:
        message: What, why, what instead.
        plugin: Entry-point name of the plugin, where known.
    """

    def __init__(self, message: str, *, plugin: str | None = None) -> None:
        """Keep ``plugin`` beside the message."""
        self.plugin = plugin
        super().__init__(message)


class ContractError(PluginError):
    """A plugin's class does not fit the contract; every problem found is listed.

    Args:
        subject: What was checked, with its import path.
        problems: One sentence per problem; never empty.
        plugin: Entry-point name of the plugin, where known.
    """

    def __init__(
        self, subject: str, problems: tuple[str, ...], *, plugin: str | None = None
    ) -> None:
        """Write one message with every problem in it."""
        self.subject = subject
        self.problems = problems
        lines = [f"{subject} does not fit the contract:", *(f"  - {p}" for p in problems)]
        super().__init__("\n".join(lines), plugin=plugin)


class ImplementationError(PluginError):
    """A kernel, an out-of-tree op class or an attention backend failed before the first request.

    Args:
        failures: Name of the implementation → how it failed; never empty.
        plugin: Entry-point name of the plugin, where known.
    """

    def __init__(self, failures: Mapping[str, str], *, plugin: str | None = None) -> None:
        """Write one message with every failure in it."""
        self.failures = dict(failures)
        lines = [f"{name} failed at its first use: {reason}" for name, reason in failures.items()]
        super().__init__("\n".join(lines), plugin=plugin)


class UnsupportedError(DougongError):
    """Something was used that was never claimed; raised while loading, never inside a step."""


class EngineDeadError(DougongError):
    """The engine stopped and answers nothing more; the cause is chained where it is known."""


class DeviceError(DougongError):
    """A device failed; nothing in the request or the configuration can mend it.

    Args:
        message: What happened.
        device_index: Index within the platform, if known.
        rank: Global rank of the worker, if known.
        step_id: The engine step in which it surfaced (it may have begun earlier), if known.
    """

    def __init__(
        self,
        message: str,
        *,
        device_index: int | None = None,
        rank: int | None = None,
        step_id: int | None = None,
    ) -> None:
        """Keep where and when beside the message."""
        self.device_index = device_index
        self.rank = rank
        self.step_id = step_id
        where = [
            f"{name}={value}"
            for name, value in (("device", device_index), ("rank", rank), ("step", step_id))
            if value is not None
        ]
        super().__init__(f"{message} ({', '.join(where)})" if where else message)


class OutOfDeviceMemory(DeviceError):  # noqa: N818 - names a condition, as torch.OutOfMemoryError
    """An allocation did not fit. Recoverable once memory is freed."""


class DeviceLost(DeviceError):  # noqa: N818 - names a condition
    """The device answers nothing any more; its context and memory are gone."""


class KernelFault(DeviceError):  # noqa: N818 - names a condition
    """A kernel failed, possibly earlier than where it surfaced (at a synchronize)."""


class CommunicatorTimeout(DeviceError):  # noqa: N818 - names a condition
    """A collective did not complete before its deadline."""


class PeerLost(DeviceError):  # noqa: N818 - names a condition
    """Another rank of the group is gone."""
