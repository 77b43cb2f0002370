"""``python -m dougong_conformance``: the command without its script on the path."""

from __future__ import annotations

from dougong_conformance.cli.main import main

if __name__ == "__main__":
    main()
