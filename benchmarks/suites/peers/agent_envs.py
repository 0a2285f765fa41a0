"""This project, in its base install."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from probe import CALLS, PROMPT_TOKENS, QUESTION, RESPONSE_TOKENS, RESULT, RESULT_TOKENS, MissingError, OfGymnasium

import agent_envs
from agent_envs.adapters.batches import build_batch
from agent_envs.episodes.record import Episode, Step, StopReason
from agent_envs.policies import ExpertPolicy
from agent_envs.problem_env import Problem
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import tool
from agent_envs.tools.python import PythonTool

IMPORT = "import agent_envs"
TASK = "GSM8KTool: a generated word problem, and calls of a calculator"
WHY: dict[str, str] = {}
REFUSAL = agent_envs.errors.ToolError
LAYOUT = "a step whose prompt goes on from the one before is put into its row"


class Problems(IndexedTasks[Problem]):
    def __len__(self) -> int:
        return 1

    def get(self, index: int) -> Problem:
        return Problem("product/0", QUESTION, RESULT)


class Loop(ToolEnv):
    def open_tasks(self) -> Problems:
        return Problems("generated", self.split)

    def begin(self, task: Problem) -> tuple[str, None]:
        return task.question, None

    def answer(self, text: str) -> Outcome:
        return Outcome("", reward=float(RESULT in text), terminated=True)


gym.register("Suites/Loop-v0", Loop, max_episode_steps=CALLS + 1)


def gymnasium_env() -> gym.Env[str, str]:
    return gym.make("AgentR1/GSM8KTool-v0")


def task() -> OfGymnasium:
    return OfGymnasium(gymnasium_env())


def action(number: int) -> str:
    return call("calculator", {"expression": f"{number}*7"})


def loop(functions: dict[str, Any], limit: float | None) -> OfGymnasium:
    tools = [function if limit is None else tool(function, timeout=limit) for function in functions.values()]
    return OfGymnasium(gym.make("Suites/Loop-v0", tools=tools))


def call(name: str, arguments: Any) -> str:
    if isinstance(arguments, str):  # not JSON
        return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
    return Loop(tools=[]).format_call(name, arguments)


def answer(text: str) -> str:
    return text


def program(code: str, seconds: float) -> str:
    with_limit = PythonTool(timeout=seconds)
    try:
        return with_limit.call(code=code)
    except agent_envs.errors.ToolError as e:
        return str(e)
    finally:
        with_limit.close()


def expert() -> tuple[int, int, str]:
    passed = played = ids = 0
    for env_id in agent_envs.ENV_IDS:
        try:
            episodes = agent_envs.run_episodes(env_id, ExpertPolicy(), 20, progress=False)
        except agent_envs.errors.MissingExtraError:
            continue
        ids += 1
        played += len(episodes)
        passed += sum(episode.success for episode in episodes)
    return passed, played, f"{ids} ids, 20 tasks each"


def processed(steps: int) -> int:
    context = list(range(PROMPT_TOKENS))
    done = []
    for number in range(steps):
        response = [1000 * number + i for i in range(RESPONSE_TOKENS)]
        last = number == steps - 1
        done.append(Step("", "", 0.0, last, False, {}, tuple(context), tuple(response), (0.0,) * RESPONSE_TOKENS))
        context += response + list(range(RESULT_TOKENS))
    episode = Episode("", "", "", None, 0, "", (), {}, tuple(done), "", StopReason.TERMINATED)
    tokens = len(build_batch([episode]).input_ids)
    if tokens == 0:
        raise MissingError("no rows")
    return tokens
