"""The version of the contract between the core and its plugins.

What raises the **major** number: a name leaves the published surface; a parameter is removed,
renamed, reordered or gains a narrower type; a method or field becomes required; the meaning of a
value changes. What raises the **minor** number: a new name, a new optional field or parameter (with
a default), a new method with a working default, a new hook. A deprecated name stays for two minors
and warns the implementer, by file and line, at load.

The published surface is ``dougong.contracts``, ``dougong.ops`` and ``dougong.reference``; a
snapshot
of it is kept in the repository and held against the code by a test.
"""

from __future__ import annotations

CONTRACT_VERSION = "1.0"
