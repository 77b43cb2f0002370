"""A platform opened to be asked and not to run: here with its devices, or elsewhere without."""

from __future__ import annotations

from dougong import envs
from dougong.errors import PlatformSelectionError
from dougong.platforms.discovery import discover
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.opening import open_platform
from dougong.platforms.selection import Selection, refusal
from dougong.platforms.table import PluginRow, PluginTable, Verdict

_ASKABLE = frozenset({Verdict.AVAILABLE, Verdict.NOT_HERE})


def open_for_description(name: str, table: PluginTable | None = None) -> LoadedPlatform | None:
    """Load an installed platform whether its device is here or not; ``None``: it is not installed.

    Its module and hooks import without the vendor's runtime, so its attention backends, ops and
    conditions can be asked; what its device measures comes from a capability file. The selection
    names no device, and nothing may be run on what is returned.

    Args:
        name: Of the platform.
        table: As `discover` made it; ``None``: what is installed.

    Raises:
        ConfigError: As `discover`; also when the allow-list excludes the platform.
        PluginError: The platform is broken, refused, or fails while it is loaded.
    """
    table = discover(allowed=envs.plugins()) if table is None else table
    rows = [row for row in table.named(name) if not row.is_extension]
    if not rows:
        return None
    if any(row.is_fault for row in rows):
        raise refusal(rows, is_explicit=True)
    row = rows[0]
    if row.verdict not in _ASKABLE:
        raise PlatformSelectionError(
            f"platform {name!r} is installed and cannot be asked. {row.sentence()}"
        )
    reason = f"platform {name}: described, no device asked"
    if row.verdict is Verdict.NOT_HERE:
        reason = f"{reason} (not here: {row.reason})"
    extensions = tuple(other for other in table.rows if _goes_with(other, row))
    return load_platform(
        Selection(
            row=row,
            devices=(),
            extensions=extensions,
            is_explicit=True,
            reasons=(reason,),
            table=table,
        )
    )


def open_present_platform(name: str | None = None, devices: str | None = None) -> LoadedPlatform:
    """`open_platform` for whoever only wants to ask: a platform that is not here is refused with
    the way to ask it all the same.

    Raises:
        ConfigError: As `open_platform`.
        PluginError: As `open_platform`.
    """
    try:
        return open_platform(name, devices)
    except PlatformSelectionError as error:
        wanted = name or envs.platform()
        if wanted is None or devices is not None:
            raise
        raise PlatformSelectionError(
            f"{error}\nWithout its device a platform is described by a capability file: where the "
            f"device is, run `dougong capabilities --platform {wanted} --save {wanted}.json`; then "
            f"name that file here, as in `dougong explain MODEL --capabilities {wanted}.json`. Or "
            "make it here, from what the wheel alone says of a family of devices: `dougong "
            f"capabilities --platform {wanted} --arch FAMILY --save {wanted}.json`."
        ) from error


def _goes_with(row: PluginRow, platform: PluginRow) -> bool:
    """Whether an extension would be loaded with the platform where that is.

    Beside a platform that is not here an extension that is not here either proves nothing.
    """
    if row.plugin is None or not row.is_extension:
        return False
    if row.verdict is not Verdict.AVAILABLE and not (
        row.verdict is Verdict.NOT_HERE and platform.verdict is Verdict.NOT_HERE
    ):
        return False
    return not row.plugin.for_platforms or platform.name in row.plugin.for_platforms
