"""A double of the vendor's CL runtime: libraries in C, and ops that are computed on the host.

Torch comes first: as it is imported, in the lane's environment, it installs what is in here.
"""

from __future__ import annotations

import torch as torch
