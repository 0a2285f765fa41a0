"""What agents cost beside the model: the door's time per call, the past, and the tokens that training computes.

The model answers at once with a fixed text, so that what is measured is everything else. Clients of the door share one
loop and kept connections; a call's time is from its request to its whole reply, and with many agents it has to wait for
the others, since one loop serves them all.

    python benchmarks/agents.py [--calls 20] [--agents 1 16 64] [--turns 200] [--repeats 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import aiohttp
import gymnasium as gym
import numpy as np

import agent_envs
from agent_envs.adapters.merging import plan_rows
from agent_envs.adapters.tiny.model import base_folder
from agent_envs.adapters.trees import sort_rows
from agent_envs.episodes.record import Episode
from agent_envs.policies.tokens import Sampled, TokenPolicy, load_tokenizer

ENV = "AgentR1/GSM8KTool-v0"
RESULT = {"role": "user", "content": "The result is 42. " * 10}


class AtOnce(TokenPolicy):
    """A model that says the same at once."""

    def __init__(self) -> None:
        super().__init__(load_tokenizer(str(base_folder())), max_tokens=64, context_length=1 << 20)
        said = "First I add the two numbers, then I take half of it, and so on."
        self._said = [*self.tokenizer.encode(said, add_special_tokens=False), self.tokenizer.eos_token_id]

    async def sample(self, prompt_ids: Any, max_tokens: int, seed: int, pictures: Any = ()) -> Sampled:
        return Sampled(self._said, [-1.0] * len(self._said))


def door(agents: int, calls: int) -> tuple[list[float], float]:
    """Return the seconds of each call over HTTP, and the calls of a second, with so many agents at once."""
    seconds: list[float] = []

    async def agent(env: Any, model: Any) -> None:
        messages = [{"role": "system", "content": env.instructions}, *env.messages]
        address = model.url + "/v1/chat/completions"
        async with aiohttp.ClientSession() as session:
            for _ in range(calls):
                began = time.perf_counter()
                async with session.post(address, json={"model": "policy", "messages": messages}) as response:
                    reply = await response.json()
                seconds.append(time.perf_counter() - began)
                messages += [reply["choices"][0]["message"], RESULT]

    began = time.perf_counter()
    agent_envs.run_episodes(ENV, AtOnce(), agents, agent=agent, concurrency=agents, progress=False)
    return seconds, len(seconds) / (time.perf_counter() - began)


def played(turns: int) -> tuple[Episode, list[float]]:
    """Return an episode of one conversation, and the seconds of each of its calls."""
    seconds: list[float] = []

    async def agent(env: Any, model: Any) -> None:
        messages = [{"role": "system", "content": env.instructions}, *env.messages]
        for _ in range(turns):
            began = time.perf_counter()
            reply = await model.chat(messages)
            seconds.append(time.perf_counter() - began)
            messages += [reply.message, RESULT]

    return agent_envs.run_episode(gym.make(ENV), AtOnce(), seed=0, agent=agent), seconds


def rendering(episode: Episode) -> float:
    """Return the seconds that rendering and tokenizing the last prompt of an episode from scratch takes."""
    model = AtOnce().open(gym.make(ENV))
    began = time.perf_counter()
    model.prompt(list(episode.steps[-1].observation))  # type: ignore[arg-type]
    return time.perf_counter() - began


def tokens(episode: Episode) -> dict[str, int]:
    """Return the tokens that training computes for an episode: with a row per call, in merged rows, and as trees."""
    steps = [(step.prompt_ids or (), step.response_ids or ()) for step in episode.steps]
    rows: dict[int, tuple[int, ...]] = {}
    for row, members in enumerate(plan_rows(steps, [()] * len(steps))):
        rows[row] = (*steps[members[-1]][0], *steps[members[-1]][1])
    offsets = [0]
    for each in rows.values():
        offsets.append(offsets[-1] + len(each))
    trees = sort_rows(np.concatenate([np.array(each) for each in rows.values()]), np.array(offsets))
    apart = sum(len(prompt) + len(response) for prompt, response in steps)
    return {"a row per call": apart, "merged rows": offsets[-1], "unique": trees.nodes}


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=20, help="calls of an agent over HTTP")
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 16, 64], help="agents at once")
    parser.add_argument("--turns", type=int, default=200, help="calls of the long conversation")
    parser.add_argument("--repeats", type=int, default=3, help="of which the fastest counts")
    options = parser.parse_args()
    door(1, 3)  # the first call loads what the others find loaded
    print(f"{'agents':>8}  {'ms a call, median':>18}  {'99 %':>8}  {'calls/s':>8}")
    for agents in options.agents:
        seconds, rate = min((door(agents, options.calls) for _ in range(options.repeats)), key=lambda r: -r[1])
        last = statistics.quantiles(seconds, n=100)[-1]
        print(f"{agents:>8}  {1e3 * statistics.median(seconds):>18.1f}  {1e3 * last:>8.1f}  {rate:>8.0f}")
    episode, seconds = min((played(options.turns) for _ in range(options.repeats)), key=lambda r: sum(r[1]))
    print(f"\none conversation of {options.turns} calls, {len(episode.steps[-1].prompt_ids or ()):,} tokens at the end")
    for name, value in (
        ("the first call", seconds[0]),
        ("the last call", seconds[-1]),
        ("its prompt, rendered from scratch", rendering(episode)),
    ):
        print(f"{name:>30}  {1e3 * value:>8.1f} ms")
    counts = tokens(played(30)[0])
    print("\ntokens that training computes for each unique one, 30 calls of one conversation")
    for name, count in counts.items():
        print(f"{name:>30}  {count:>8}  {count / counts['unique']:>8.2f}")


if __name__ == "__main__":
    main()
