"""What a device measures, read where reading it does no harm."""

from __future__ import annotations

from dataclasses import asdict

from dougong.contracts.capabilities import Capabilities, DeviceFacts
from dougong.errors import DeviceError, PluginError
from dougong.platforms.device_questions import answer_about_device, ask_about_device
from dougong.platforms.loading import LoadedPlatform
from dougong.platforms.probing import caught

_TIMEOUT_S = 120.0


def read_capabilities(loaded: LoadedPlatform, device_index: int) -> Capabilities:
    """Claims and facts of one device, for planning.

    Facts are read in a short-lived child where the platform says that reading opens a context.

    Raises:
        DeviceError: The device does not answer.
        PluginError: A query raised or answered something else than it had promised.
    """
    facts = _read_facts(loaded, device_index)
    plugin = loaded.selection.row
    try:
        claims = loaded.platform.claims(facts.arch)
    except Exception as exc:
        reason = caught(exc).reason
        raise PluginError(f"{plugin.wheel}: claims({facts.arch!r}) raised {reason}") from exc
    return Capabilities(claims=claims, facts=facts)


def _read_facts(loaded: LoadedPlatform, device_index: int) -> DeviceFacts:
    row = loaded.selection.row
    if not loaded.platform.facts_open_context:
        try:
            return loaded.platform.facts(device_index)
        except DeviceError:
            raise
        except Exception as exc:
            reason = caught(exc).reason
            raise PluginError(f"{row.wheel}: facts({device_index}) raised {reason}") from exc
    answer = ask_about_device(
        loaded,
        device_index,
        module=__name__,
        what=f"facts({device_index})",
        timeout_s=_TIMEOUT_S,
    )
    return DeviceFacts(**answer)


if __name__ == "__main__":
    answer_about_device(lambda loaded, device_index: asdict(loaded.platform.facts(device_index)))
