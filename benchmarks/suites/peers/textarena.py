"""TextArena: a game of one player."""

from __future__ import annotations

from typing import Any

import textarena

IMPORT = "import textarena"
TASK = "GuessTheNumber-v0"
_NO_TOOLS = "has no tools: an action is a move"
WHY = {
    "gymnasium_env": "is no gymnasium.Env: players, `get_observation`, `step(action)`, rewards at the end",
    "loop": _NO_TOOLS,
    "tool_limit": _NO_TOOLS,
    "program": _NO_TOOLS,
    "hostile_calls": _NO_TOOLS,
    "expert": "has no solver",
    "processed": "is no trainer",
}


class Played:
    def __init__(self) -> None:
        self.env: Any = textarena.make("GuessTheNumber-v0")

    def reset(self, seed: int) -> str:
        self.env.reset(num_players=1, seed=seed)
        return str(self.env.get_observation()[1])

    def step(self, action: str) -> tuple[str, float, bool]:
        done, _ = self.env.step(action)
        if done:
            rewards, _ = self.env.close()
            return "", float(rewards[0]), True
        return str(self.env.get_observation()[1]), 0.0, False


def task() -> Played:
    return Played()


def action(number: int) -> str:
    return f"[{number + 1}]"
