"""Every environment variable Dougong reads: name, type, default, why. Nothing else reads any.

Each variable has one accessor. It reads at the call, so a change made by a test or a parent process
is seen; a value that cannot be understood raises `ConfigError` instead of being ignored. `TABLE`
lists them all for ``--help`` and the documentation.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dougong.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable, as the documentation shows it."""

    name: str
    type: str
    default: str
    why: str


TABLE: tuple[Variable, ...] = (
    Variable(
        "DOUGONG_CACHE",
        "folder",
        "the user's cache folder for dougong",
        "where the demo model and built kernels are kept",
    ),
    Variable(
        "DOUGONG_PLATFORM",
        "platform name",
        "unset: chosen automatically",
        "same as --platform: obeyed, or the start fails",
    ),
    Variable(
        "DOUGONG_PLUGINS",
        "comma-separated plugin names",
        "unset: every installed plugin",
        "allow-list of platform plugins; cpu is always allowed",
    ),
    Variable(
        "DOUGONG_CERTIFICATES",
        "folder",
        "unset: only a wheel's own certificate counts",
        "certificates of conformance (*.json), for `--require-conformance` and the start block",
    ),
    Variable(
        "DOUGONG_API_KEY",
        "text",
        "unset: no key is asked for",
        "same as --api-key of `dougong serve`, which comes first; unseen by others on the machine",
    ),
    Variable("DOUGONG_LOG_LEVEL", "/".join(("DEBUG", "INFO", "WARNING", "ERROR")), "INFO", "log"),
    Variable(
        "HF_ENDPOINT",
        "URL",
        "https://huggingface.co",
        "hub or mirror that Hugging Face ids are fetched from",
    ),
    Variable(
        "the platform's own, as `Platform.visible_devices_env` names it",
        "comma-separated device ids",
        "unset: every device",
        "devices this process may use; its order is kept, empty means none",
    ),
    Variable(
        "those that an implementation's conditions name (`Needs.env`)",
        "see `dougong explain`",
        "unset",
        "switches on what a plugin brings and leaves off",
    ),
    Variable(
        "HF_HUB_OFFLINE, HF_HOME, HF_TOKEN",
        "see huggingface_hub",
        "see huggingface_hub",
        "read by the huggingface_hub library itself, never by Dougong",
    ),
)

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def cache_dir() -> Path:
    """``DOUGONG_CACHE``: what can be fetched or built again; may not exist yet."""
    value = _read("DOUGONG_CACHE")
    if value is None:
        import platformdirs

        return platformdirs.user_cache_path("dougong", appauthor=False)
    path = Path(value).expanduser()
    if path.exists() and not path.is_dir():
        raise ConfigError(f"DOUGONG_CACHE={value!r} is a file. Name a folder, or unset it.")
    return path


def platform() -> str | None:
    """``DOUGONG_PLATFORM``: name of the platform to use; ``None`` when it is left open."""
    value = _read("DOUGONG_PLATFORM")
    if value is not None and not value.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(
            f"DOUGONG_PLATFORM={value!r} is not a platform name. "
            "Use one that `dougong doctor` lists, or unset it."
        )
    return value


def plugins() -> tuple[str, ...] | None:
    """``DOUGONG_PLUGINS``: allowed plugin names in the order given; ``None``: all of them."""
    value = _read("DOUGONG_PLUGINS")
    if value is None:
        return None
    names = tuple(part.strip() for part in value.split(","))
    if not all(names):
        raise ConfigError(
            f"DOUGONG_PLUGINS={value!r} has an empty name in it. "
            "Write names between single commas, as in 'cpu,acme', or unset it."
        )
    return names


def certificates() -> Path | None:
    """``DOUGONG_CERTIFICATES``: a folder with certificates; ``None``: none is named."""
    value = _read("DOUGONG_CERTIFICATES")
    if value is None:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"DOUGONG_CERTIFICATES={value!r} is no folder. Name one, or unset it.")
    return folder


def api_key() -> str | None:
    """``DOUGONG_API_KEY``: what clients of a server must show; ``None``: it is not set."""
    return _read("DOUGONG_API_KEY")


def log_level() -> str:
    """``DOUGONG_LOG_LEVEL``: a `logging` level name in capitals."""
    value = (_read("DOUGONG_LOG_LEVEL") or "INFO").upper()
    if value not in _LOG_LEVELS:
        raise ConfigError(
            f"DOUGONG_LOG_LEVEL={value!r} is not a log level. Use one of {', '.join(_LOG_LEVELS)}."
        )
    return value


def hf_endpoint() -> str | None:
    """``HF_ENDPOINT``: base URL of the hub, without a trailing slash; ``None``: the public one."""
    value = _read("HF_ENDPOINT")
    if value is None:
        return None
    if not value.startswith(("http://", "https://")):
        raise ConfigError(
            f"HF_ENDPOINT={value!r} is not a URL. Write it as in 'https://hub.example.org', "
            "or unset it to use the public hub."
        )
    return value.rstrip("/")


def device_mask(variable: str) -> str | None:
    """Value of a platform's own mask variable (`Platform.visible_devices_env`).

    ``None``: it is not set. An empty value is kept, for it masks every device.
    """
    return os.environ.get(variable)


def with_variables(more: Mapping[str, str]) -> dict[str, str] | None:
    """A child's environment: this process's and ``more``; ``None`` where there is no more."""
    return {**os.environ, **more} if more else None


def condition_variables(names: Iterable[str]) -> dict[str, str]:
    """Of the variables that conditions name (`Needs.env`) those that are set, with their values."""
    return {name: os.environ[name] for name in sorted(set(names)) if name in os.environ}


def _read(name: str) -> str | None:
    """Value of ``name`` without surrounding blanks; unset and empty are the same."""
    return os.environ.get(name, "").strip() or None
