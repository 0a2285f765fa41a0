"""Notices that an actor of Ray has died.

verl gives agent-loop workers their tasks and waits for rows in TransferQueue: the rows of a worker that the system has
killed, for want of memory as a rule, never come, and no call fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import ActorDiedError

from agent_envs.errors import BackendError

__all__ = ["Liveness"]


class Liveness:
    """Asks actors whether they are there, and never waits for an answer: a busy one answers later, a dead one fails.

    Args:
        actors: Handles of actors by the name that an error gives them.
    """

    def __init__(self, actors: Mapping[str, Any]) -> None:
        self._actors = dict(actors)
        self._asked = {name: actor.__ray_ready__.remote() for name, actor in self._actors.items()}

    def check(self) -> None:
        """Read the answers that there are, and ask again.

        Raises:
            BackendError: An actor died; the message has Ray's reason.
        """
        for name, answer in self._asked.items():
            if not ray.wait([answer], timeout=0)[0]:
                continue
            try:
                ray.get(answer)
            except ActorDiedError as e:
                reason = " ".join(str(e).split())
                raise BackendError(f"{name} died, and with it what it was doing: {reason}") from e
            self._asked[name] = self._actors[name].__ray_ready__.remote()
