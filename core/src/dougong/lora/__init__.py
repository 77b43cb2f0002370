"""Low-rank adapters (Hu et al. 2021, arXiv:2106.09685): files, device memory, what runs in a step.

`read_adapter` reads what peft saves; `LoRASlots` holds adapters on a device and adds them where a
model computes its projections. The products are the platform's `LoRAWrapper`'s.
"""

from __future__ import annotations

from dougong.lora.adapter import read_adapter
from dougong.lora.places import LoRAPlace, adapter_elements, adapter_places
from dougong.lora.slots import LoRASlots

__all__ = ["LoRAPlace", "LoRASlots", "adapter_elements", "adapter_places", "read_adapter"]
