"""Whether the output head shares the embedding's matrix: one rule for every file format."""

from __future__ import annotations

from collections.abc import Collection

HEAD = "lm_head.weight"


def has_tied_head(names: Collection[str]) -> bool:
    """Whether logits are computed with the embedding matrix: when the files hold no head.

    The files decide, the config's ``tie_word_embeddings`` does not:

    * no head in the files: tied, even if the config says false; there is nothing else to multiply
      with;
    * a head in the files, config false or silent: not tied;
    * a head in the files, config true: not tied, the stored head is used. `transformers` 5 ties
      here only when head and embedding are equal element by element, so the numbers agree; when
      they are equal, ours costs the memory of one more matrix.

    Args:
        names: Tensor names in the checkpoint, as a `TensorSource` gives them (``output.weight`` of
            a GGUF file is ``lm_head.weight`` there).
    """
    return HEAD not in names
