"""Native CPU kernels: C++ compiled at first use, called on torch tensors, bound once at load.

```python
library = load_native_library()                 # NativeLibrary, or NotBuilt with a reason
if isinstance(library, NotBuilt): ...           # the plain-torch path; say library.reason
qkv = bind_linear(library, pack_linear(library, weight))
qkv(x, out)                                     # in the step: no checks, no allocation
```

Bound at load (each takes `library` first), then called in the step:

* `bind_linear(packed, bias=, out_dtype=)` -> `(x, out)`
* `bind_gate_up_act(packed, activation=)` -> `(x, out)`
* `bind_rms_norm(weight, hidden_size=, dtype=, eps=)` -> `(x, out)`
* `bind_add_rms_norm`, alike -> `(x, residual, out)`
* `bind_rope(cos_sin, head_dim=, num_heads=, num_kv_heads=, dtype=)` -> `(q, k, positions)`
* `bind_write_kv(k_cache, v_cache, dtype=)` -> `(k, v, slot_mapping)`
* `bind_rope_and_write_kv(cos_sin, k_cache, v_cache, num_heads=, dtype=)`
  -> `(q, k, v, positions, slot_mapping)`
* `bind_paged_attention(k_cache, v_cache, num_heads=, scale=, dtype=, sliding_window=, softcap=)`
  -> `(q, block_table, seq_lens, cu_seqlens_q, out)`

What is bound keeps its weights and tables; a cache belongs to the caller, who lets it go when it
likes and calls nothing that was bound to it afterwards.

Unbound: `pack_linear(library, weight)`, `pack_gate_up(library, gate, up)`, both with ``_blocks``
for weights that stay in 4 or 8 bits,
`embedding(library, table_or_packed, ids, out)`, `argmax_rows(library, logits, out)`,
`attention_workspace_bytes(library, ...)` for what attention keeps beside its arguments,
`advise_huge_pages(library, tensor)` for a cache before its first write.

Promises, each with a test: a row's bits depend on that row alone, not on the batch, the chunk, the
block size or the number of threads; padding slots and padded block table entries are not touched;
one OpenMP runtime, PyTorch's; small work stays on the calling thread.

Taken: float32 and bfloat16; any K and N; head_dim a multiple of 16 up to 256; any block size; any
row stride with a contiguous last axis. Anything else is refused while binding, with
`UnsupportedError`. The kernels want AVX2 with FMA at least; AVX-512 and its bfloat16 products are
used where the processor has them (`NativeLibrary.level`).
"""

from __future__ import annotations

from dougong.cpu.native.attention import (
    attention_workspace_bytes,
    bind_paged_attention,
    bind_rope,
    bind_rope_and_write_kv,
    bind_write_kv,
    unsupported_attention,
)
from dougong.cpu.native.blocks import FORMATS as BLOCK_FORMATS
from dougong.cpu.native.blocks import embedding_from_blocks, pack_blocks, pack_gate_up_blocks
from dougong.cpu.native.build import NotBuilt
from dougong.cpu.native.library import (
    NativeLibrary,
    advise_huge_pages,
    load_native_library,
)
from dougong.cpu.native.linear import (
    PackedWeight,
    bind_gate_up_act,
    bind_linear,
    pack_gate_up,
    pack_linear,
)
from dougong.cpu.native.rows import argmax_rows, bind_add_rms_norm, bind_rms_norm, embedding

__all__ = [
    "BLOCK_FORMATS",
    "NativeLibrary",
    "NotBuilt",
    "PackedWeight",
    "advise_huge_pages",
    "argmax_rows",
    "attention_workspace_bytes",
    "bind_add_rms_norm",
    "bind_gate_up_act",
    "bind_linear",
    "bind_paged_attention",
    "bind_rms_norm",
    "bind_rope",
    "bind_rope_and_write_kv",
    "bind_write_kv",
    "embedding",
    "embedding_from_blocks",
    "load_native_library",
    "pack_blocks",
    "pack_gate_up",
    "pack_gate_up_blocks",
    "pack_linear",
    "unsupported_attention",
]
