"""Versions that must meet before a plugin is used; each answer names both and what to install."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from dougong.contracts.support import Support
from dougong.contracts.version import CONTRACT_VERSION

CORE_VERSION = version("dougong")
"""Of the installed core; `dougong.__version__` would import upwards."""


def check_core_version(requires: Iterable[str], wheel: str, core: str = CORE_VERSION) -> Support:
    """Whether a wheel's ``Requires-Dist: dougong`` takes this core; asked before any import.

    Args:
        requires: The wheel's ``Requires-Dist`` lines; none about the core takes every version.
        wheel: Distribution and version, for the message.
        core: Version of the core.
    """
    for line in requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            return Support.no(f"its metadata has an unreadable Requires-Dist {line!r}: {error}")
        if canonicalize_name(requirement.name) != "dougong":
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if not requirement.specifier.contains(core, prereleases=True):
            return Support.no(
                f"{wheel} was built for dougong{requirement.specifier} and this is dougong {core}. "
                f"Install a version of it built for dougong {core}, "
                f"or run: pip install '{requirement.name}{requirement.specifier}'"
            )
    return Support.yes()


def check_contract_version(
    requires_contract: object, wheel: str, contract: str = CONTRACT_VERSION
) -> Support:
    """Whether a descriptor's ``requires_contract`` takes this core's contract.

    Args:
        requires_contract: As the descriptor has it; may be anything.
        wheel: Distribution and version, for the message.
        contract: Version of the contract.
    """
    if not isinstance(requires_contract, str) or not requires_contract.strip():
        return Support.no(
            f"requires_contract is {requires_contract!r}; it must say which versions of the "
            f"contract the plugin was written for, as in '>={contract},<{_next_major(contract)}'"
        )
    try:
        wanted = SpecifierSet(requires_contract)
    except InvalidSpecifier:
        return Support.no(
            f"requires_contract={requires_contract!r} cannot be read; write it as in "
            f"'>={contract},<{_next_major(contract)}'"
        )
    if wanted.contains(contract, prereleases=True):
        return Support.yes()
    return Support.no(
        f"{wheel} was written for contract {requires_contract} and dougong {CORE_VERSION} has "
        f"contract {contract}. Install a version of it written for contract {contract}, "
        f"or a dougong whose contract is {requires_contract}"
    )


def _next_major(version: str) -> int:
    return int(version.split(".")[0]) + 1
