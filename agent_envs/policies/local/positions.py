"""How long the sequences of a model may be, from its configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_STRETCHED = ("dynamic", "linear", "yarn")  # rotary embeddings whose factor is not in the number of positions


def context_positions(config: Mapping[str, Any]) -> int | None:
    """Return the tokens of the longest sequence a model was made for, or None if its `config.json` does not say.

    >>> context_positions({"max_position_embeddings": 4096})
    4096
    >>> rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    >>> context_positions({"max_position_embeddings": 32768, "rope_scaling": rope})
    131072
    """
    text = config.get("text_config")
    config = text if isinstance(text, Mapping) else config
    positions = next((n for n in map(config.get, _NAMES) if isinstance(n, int) and n > 0), None)
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    if positions is None or not isinstance(rope, Mapping):
        return positions
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if kind not in _STRETCHED or not isinstance(factor, (int, float)):
        return positions
    return max(positions, int(rope.get("original_max_position_embeddings", positions) * factor))
