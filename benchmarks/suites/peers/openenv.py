"""OpenEnv (openenv-core): an environment of its MCP class in the same process, without its server's protocol."""

from __future__ import annotations

import asyncio
from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.env_server.types import Action, Observation, State
from probe import QUESTION, RESULT, calculator
from pydantic import ValidationError

IMPORT = "from openenv.core.env_server.mcp_environment import MCPEnvironment"
TASK = "a question and a calculator, written by hand: environments are packages by others"
WHY = {
    "gymnasium_env": "is no gymnasium.Env: typed actions and observations",
    "program": "its executor is that of smolagents, which does not come with it",
    "hostile_texts": "actions are typed messages, not text",
    "expert": "has no tasks and no solver of its own",
    "processed": "is no trainer",
}
_loop = asyncio.new_event_loop()


class Answer(Action):
    text: str


class Problem(MCPEnvironment):
    def __init__(self, functions: dict[str, Any]) -> None:
        server: Any = FastMCP("problem")
        for function in functions.values():
            server.tool(function)
        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation(done=False, reward=0.0, metadata={"question": QUESTION})

    def _step_impl(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation(done=True, reward=float(RESULT in action.text))  # type: ignore[attr-defined]

    @property
    def state(self) -> State:
        return State()


class Played:
    """Played as its WebSocket handler does: `step_async`, with the MCP session open."""

    def __init__(self, functions: dict[str, Any], limit: float | None) -> None:
        self.env, self.limit = Problem(functions), limit
        self.session = self.env.mcp_session()
        _loop.run_until_complete(self.session.__aenter__())

    def reset(self, seed: int) -> str:
        return str(_loop.run_until_complete(self.env.reset_async(seed=seed)).metadata["question"])

    def step(self, action: tuple[str, Any]) -> tuple[str, float, bool]:
        try:
            built = Answer(text=action[1]) if action[0] == "answer" else CallToolAction(
                tool_name=action[0], arguments=action[1]
            )  # fmt: skip
        except ValidationError as e:  # its server answers these with an error message
            return str(e), 0.0, False
        seen: Any = _loop.run_until_complete(self.env.step_async(built, timeout_s=self.limit))
        if seen.done:
            return "", float(seen.reward), True
        return str(seen.error.message if seen.error else seen.result.content[0].text), 0.0, False


def loop(functions: dict[str, Any], limit: float | None) -> Played:
    return Played(functions, limit)


def task() -> Played:
    return loop({"calculator": calculator}, None)


def action(number: int) -> tuple[str, Any]:
    return call("calculator", {"expression": f"{number}*7"})


def call(name: str, arguments: Any) -> tuple[str, Any]:
    return name, arguments


def answer(text: str) -> tuple[str, Any]:
    return "answer", text
