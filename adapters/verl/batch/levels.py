"""Levels in verl's batches: the environment of each prompt is played at one that the curriculum draws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tensordict import TensorDict
from verl.utils.tensordict_utils import assign_non_tensor_stack

from agent_envs.adapters.curriculum import Curriculum
from agent_envs.adapters.verl.batch.metrics import BatchPart
from agent_envs.episodes.record import StopReason


class Levels:
    """What the prompts of a step are played at, and the success on each level in all steps before; none for None."""

    def __init__(self, curriculum: Curriculum | None, seed: int) -> None:
        self._curriculum, self._seed = curriculum, seed
        self._of: dict[str, str] = {}  # that of each uid of the step
        self.records: list[dict[str, Any]] = []
        """The metrics of each step, which a resumed run needs."""

    def choose(self, batch: TensorDict, step: int, steps: int) -> None:
        """Draw the level of each prompt of a step of so many, and add it to its environment's arguments."""
        if self._curriculum is None:
            return
        how: dict[str, Any] = {"seed": self._seed, "number": step, "steps": steps}
        drawn = self._curriculum.draw(len(batch), records=self.records, **how)
        levels = [(self._curriculum.names[i], self._curriculum.env_kwargs[i]) for i in drawn]
        rows = zip(batch["env_kwargs"], levels, strict=True)
        assign_non_tensor_stack(batch, "env_kwargs", [json.dumps(json.loads(row) | own) for row, (_, own) in rows])
        self._of.update(zip(map(str, batch["uid"]), (name for name, _ in levels), strict=True))

    def note(self, parts: Sequence[BatchPart], step: int) -> dict[str, float]:
        """Return success and number of the episodes of each level that a step played."""
        if self._curriculum is None:
            return {}
        found: dict[str, dict[str, bool]] = {}
        for row in (row for part in parts for row in part.rows):
            if row["kind"] != "padding" and not StopReason(row["record"]["stop_reason"]).broken:
                level = self._of[row["trajectory"].rpartition("_")[0]]
                found.setdefault(level, {})[row["trajectory"]] = row["record"]["success"]
        metrics: dict[str, float] = {}
        for level, episodes in sorted(found.items()):
            metrics[f"env/{level}/success"] = sum(episodes.values()) / len(episodes)
            metrics[f"env/{level}/episodes"] = float(len(episodes))
        self._of.clear()
        self.records.append({"step": step, **metrics})
        return metrics
