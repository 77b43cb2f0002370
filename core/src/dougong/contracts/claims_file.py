"""Claims as a data file in the wheel, so that anyone can plan for a chip without it.

```toml
[generic]                            # holds for every family, and alone for an unknown one
dtypes = ["float32"]

[family.acme1]                       # what differs, or is known only of this one
dtypes = ["bfloat16", "float32"]
features = ["mm.bf16"]

[family.acme1.limits]
"shared_memory_bytes" = 65536

[[family.acme1.quantization]]
format = "fp8"
storage = "float8_e4m3fn"
activation_dtypes = ["bfloat16"]
is_native = true
kernel = "acme/mm_fp8"
```

Keys are the fields of `Claims`; lists become tuples, and a set where the field is one. What a
family states replaces what ``[generic]`` says of the same field: the whole list, the whole table.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, get_type_hints

import msgspec

from dougong.contracts.capabilities import Claims, QuantizationSupport
from dougong.errors import ConfigError

_NOT_IN_FILES = frozenset({"arch", "is_generic"})
_TYPES = {name: kind for name, kind in get_type_hints(Claims).items() if name not in _NOT_IN_FILES}
_FORMAT = {one.name: one.default is MISSING for one in fields(QuantizationSupport)}


def read_claims(package: str, arch: str, file: str = "claims.toml") -> Claims:
    """What a file in a package claims for a family.

    Args:
        package: Import name of the package that holds the file.
        arch: Family, as `DeviceInfo.arch` and `DeviceFacts.arch` name it.
        file: Name of the file inside the package.

    Returns:
        The family's claims. Of one that the file does not list: what holds for every family, with
        ``is_generic`` set. A value of the caller's own.

    Raises:
        ConfigError: No such file, or it is not TOML, has no ``[generic]``, names a field that
            `Claims` has not, or has a value of a wrong type: every problem with its place, of all
            families.
    """
    generic, families = _read(package, file)
    claims = families.get(arch) or replace(generic, arch=arch, is_generic=True)
    # its mappings are plain dicts, which nobody may share with the next caller
    return replace(claims, limits={**claims.limits}, compute_rate={**claims.compute_rate})


def read_families(package: str, file: str = "claims.toml") -> tuple[str, ...]:
    """The families that a file lists, in its order.

    Args:
        package: Import name of the package that holds the file.
        file: Name of the file inside the package.

    Raises:
        ConfigError: As `read_claims`.
    """
    return tuple(_read(package, file)[1])


@cache
def _read(package: str, file: str) -> tuple[Claims, Mapping[str, Claims]]:
    where = f"{file} of {package}"
    try:
        stated = tomllib.loads(files(package).joinpath(file).read_text("utf-8"))
    except (ModuleNotFoundError, OSError) as exc:
        raise ConfigError(
            f"{where} cannot be read: {exc}. Put it beside the package's modules, and name it as "
            "package data so that wheels have it."
        ) from exc
    except ValueError as exc:
        raise ConfigError(f"{where} is not TOML in UTF-8: {exc}.") from exc
    problems = tuple(_problems(stated))
    if problems:
        raise ConfigError(f"{where} states no usable claims:", problems)
    generic = stated["generic"]
    families = {
        arch: _claims(arch, {**generic, **own}) for arch, own in stated.get("family", {}).items()
    }
    return _claims("", generic), families


def _claims(arch: str, stated: Mapping[str, Any]) -> Claims:
    values = {name: msgspec.convert(value, _TYPES[name]) for name, value in stated.items()}
    return Claims(arch=arch, **values)


def _problems(stated: Mapping[str, Any]) -> Iterator[str]:
    """Everything that is wrong, with its place."""
    yield from (
        f"[{name}] is no table of this file: it has [generic] and [family.NAME]"
        for name in stated
        if name not in ("generic", "family")
    )
    generic = stated.get("generic")
    if not isinstance(generic, dict):
        yield "there is no [generic]: it says what holds for every family, also an unknown one"
    else:
        yield from _table_problems("generic", generic)
        if "dtypes" not in generic:
            yield "generic.dtypes is missing: claims name at least one dtype"
    families = stated.get("family", {})
    if not isinstance(families, dict):
        yield "family is no table: write one [family.NAME] for each"
        return
    for arch, own in families.items():
        place = f"family.{arch}"
        yield from (
            _table_problems(place, own) if isinstance(own, dict) else (f"{place} is no table",)
        )


def _table_problems(place: str, table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if name not in _TYPES:
            yield f"{place}.{name} is no field of Claims{_nearest(name, _TYPES)}"
            continue
        try:
            converted = msgspec.convert(value, _TYPES[name])
        except msgspec.ValidationError as exc:
            yield f"{place}.{name}: {exc}"
            continue
        if name in ("dtypes", "kv_dtypes", "kv_block_sizes") and not converted:
            yield f"{place}.{name} is empty; it names at least one"
        if name == "slot_dtype" and value not in ("int64", "int32"):
            yield f"{place}.slot_dtype is {value!r}; int64 or int32"
        if name == "quantization":
            yield from _format_problems(f"{place}.quantization", value)


def _format_problems(place: str, tables: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for index, table in enumerate(tables):
        for name in table:
            if name not in _FORMAT:
                yield f"{place}[{index}].{name} is no field of it{_nearest(name, _FORMAT)}"


def _nearest(name: str, names: Iterable[str]) -> str:
    known = list(names)
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
