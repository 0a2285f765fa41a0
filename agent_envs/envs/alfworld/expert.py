"""The names of ALFWorld's experts, and plausible mistakes for noisy demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

EXPERTS = ("explore", "oracle")
"""`explore` acts only on what it has read, as a policy does; `oracle` sees the whole state."""

_MISTAKES = (("go to ", 0.55), ("examine ", 0.1), ("open ", 0.1), ("take ", 0.1), ("close ", 0.05), ("", 0.1))


def wrong_command(rng: np.random.Generator, admissible: Sequence[str], right: str) -> str:
    """Return an admissible command other than the right one, most often a `go to`.

    >>> wrong_command(np.random.default_rng(0), ["go to bed 1", "go to desk 1"], "go to bed 1")
    'go to desk 1'
    """
    kinds = [(_of_kind(admissible, start, right), weight) for start, weight in _MISTAKES]
    some = [(commands, weight) for commands, weight in kinds if commands]
    if not some:
        return right
    weights = np.array([weight for _, weight in some])
    commands = some[int(rng.choice(len(some), p=weights / weights.sum()))][0]
    return commands[int(rng.integers(len(commands)))]


def _of_kind(admissible: Sequence[str], start: str, right: str) -> list[str]:
    if not start:
        return [command for command in ("look", "inventory") if command in admissible and command != right]
    return [command for command in admissible if command.startswith(start) and command != right]
