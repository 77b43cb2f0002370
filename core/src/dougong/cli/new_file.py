"""``--save FILE``: a file that somebody keeps is never written over."""

from __future__ import annotations

from pathlib import Path

from dougong.errors import ConfigError


def check_new_file(file: Path | None, *, kept: str, instead: str, option: str = "--save") -> None:
    """Refuse before any work what could not be written after it.

    Args:
        file: As ``--save`` has it; ``None``: nothing is saved.
        kept: What may be in the file that is there.
        instead: What else to do, after "Delete it, name another file, or".
        option: The option's name.

    Raises:
        ConfigError: There is such a file, or no folder for it.
    """
    if file is None:
        return
    if file.exists():
        raise ConfigError(
            f"{option} {file}: the file exists, and {kept} is never written over. Delete it, name "
            f"another file, or {instead}."
        )
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"{option} {file}: there is no folder {file.absolute().parent}.")
