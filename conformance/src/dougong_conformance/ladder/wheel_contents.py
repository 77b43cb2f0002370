"""What a plugin's wheel must not hold: doubles, stubs, golden files, tests.

``python -m dougong_conformance.ladder.wheel_contents WHEEL...`` names them and ends with 1.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

_FOR_TESTS = re.compile(
    r"(^|[_./-])(tests?|golden|doubles?|stubs?|fakes?|references?|stand_ins?|schemas\.json)([_./-]|$)"
)


def strangers(wheel: Path) -> tuple[str, ...]:
    """Files of a wheel that are for tests, or lie outside its one package; sorted.

    Args:
        wheel: Named by the rules, ``dougong_acme-1.0-py3-none-any.whl``.
    """
    package = wheel.name.partition("-")[0]
    with zipfile.ZipFile(wheel) as content:
        names = [name for name in content.namelist() if not name.endswith("/")]
    return tuple(
        sorted(
            name
            for name in names
            if not name.startswith((f"{package}/", f"{package}-"))
            or _FOR_TESTS.search(name.partition("/")[2])
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    found = [
        f"{Path(name).name} holds {stranger}"
        for name in (sys.argv[1:] if arguments is None else arguments)
        for stranger in strangers(Path(name))
    ]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
