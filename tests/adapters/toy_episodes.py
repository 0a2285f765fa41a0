"""Episodes of drawn tokens, which no environment played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agent_envs.episodes.record import Episode, Step, StopReason


def toy_episode(
    name: str,
    steps: Sequence[Step],
    group: str = "g",
    reason: StopReason = StopReason.TERMINATED,
    reset_info: dict[str, Any] | None = None,
) -> Episode:
    """An episode of no environment."""
    return Episode("Toy-v0", name, group, None, 0, "", (), reset_info or {}, tuple(steps), "", reason)


def drawn_episodes(
    seed: int, contexts: str, groups: int = 3, per_group: int = 3, longest: int = 4
) -> list[tuple[int, tuple[int, ...], Episode]]:
    """Episodes as an agent would leave them: (group, final prompt, episode). Every third is cut.

    ``grow``: every prompt extends the one before. ``mixed``: prompts are rebuilt, cut, and two contexts take turns.
    """
    rng = np.random.default_rng(seed)

    def draw(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(x) for x in rng.integers(7, 250, int(rng.integers(low, high))))

    out = []
    for group in range(groups):
        start, helper = draw(5, 12), draw(4, 8)
        for session in range(per_group):
            lineages, steps, count = [start, helper], [], int(rng.integers(1, longest + 1))
            for t in range(count):
                what = int(rng.integers(4)) if contexts == "mixed" and t else 0
                which = int(what == 1)
                if what == 2:
                    lineages[0] = draw(5, 12)  # rebuilt
                elif what == 3:
                    lineages[0] = lineages[0][3:]  # its oldest tokens dropped
                response, last = draw(1, 6), t == count - 1
                cut = last and session % 3 == 1
                steps.append(Step(
                    "o", "a", round(float(rng.normal()), 2), last and not cut, cut,
                    {"reward_components": {"format": float(t % 2)}, "anchor": f"{group}/{rng.integers(2)}"},
                    lineages[which], response, tuple(float(x) for x in rng.normal(-5, 0.3, len(response))),
                ))  # fmt: skip
                lineages[which] = (*lineages[which], *response, *draw(1, 5))
            reason = StopReason.TRUNCATED if steps[-1].truncated else StopReason.TERMINATED
            info = {"anchor": f"{group}/start"}
            out.append((group, lineages[0], toy_episode(f"g{group}_{session}", steps, f"g{group}", reason, info)))
    return out
