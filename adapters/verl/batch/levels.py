"""Levels in verl's batches: the environment of each prompt is played at one that the curriculum draws."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tensordict import TensorDict
from verl.utils.tensordict_utils import assign_non_tensor_stack

from agent_envs.adapters.curriculum import Curriculum


class Levels:
    """What the prompts of a step are played at, and the success on each level in all steps before; none for None."""

    def __init__(self, curriculum: Curriculum | None, seed: int) -> None:
        self._curriculum, self._seed = curriculum, seed
        self.records: list[dict[str, Any]] = []
        """The metrics of each step, which a resumed run needs."""

    def choose(self, batch: TensorDict, step: int, steps: int) -> None:
        """Draw the level of each prompt of a step of so many, and add it to its environment's arguments."""
        if self._curriculum is None:
            return
        how: dict[str, Any] = {"seed": self._seed, "number": step, "steps": steps}
        drawn = self._curriculum.draw(len(batch), records=self.records, **how)
        rows = zip(batch["env_kwargs"], (self._curriculum.env_kwargs[i] for i in drawn), strict=True)
        assign_non_tensor_stack(batch, "env_kwargs", [json.dumps(json.loads(row) | own) for row, own in rows])
        assign_non_tensor_stack(batch, "level", [self._curriculum.names[i] for i in drawn])

    def note(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep what the metrics of a step say of each level."""
        if self._curriculum is not None:
            own = tuple(f"env/{name}/" for name in self._curriculum.names)
            self.records.append({"step": step, **{k: value for k, value in metrics.items() if k.startswith(own)}})
