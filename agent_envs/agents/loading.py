"""Names agents, and binds one to the policy whose model it asks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.agents.builtin import best_of, compact
from agent_envs.agents.command import command
from agent_envs.checks import load_function, shown
from agent_envs.episodes.verdict import EpisodeVerdict
from agent_envs.errors import ConfigError, PolicyError, did_you_mean
from agent_envs.policies.model import EpisodeModel, ModelPolicy
from agent_envs.policies.policy import Actor, Policy, PolicyLike, check_policy
from agent_envs.registration import layers
from agent_envs.wrapping.order import Place, PlacedWrapper
from agent_envs.wrapping.specs import read_spec

Agent = Callable[..., Any]
"""`agent(env, model)`, async or not: see `PlayedEnv` and `RecordedModel`. What it returns is not used."""

Score = Callable[..., float | EpisodeVerdict]
"""`score(episode, env, workdir)`: an agent's reward, or a verdict with a reward for each call; `workdir` is a command's
folder, None for a function."""

_INCLUDED: dict[str, Agent] = {"best_of": best_of, "command": command, "compact": compact}


def load_agent(agent: str | Agent) -> Agent:
    """Return an agent: a function, its name "module:function", one with arguments, "compact(after=6000)", or a command.

    Importing runs the module, so pass only names that the user wrote, never recorded ones.

    >>> load_agent("my_flow.plan")
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: an agent is written module:function or compact(...), and a command has a space ...

    Raises:
        ConfigError: There is no such function, or it does not take `env` and `model`.
    """
    name, player = shown(agent), agent
    if isinstance(agent, str) and " " in agent.partition("(")[0].strip():
        player = command(agent)
    elif isinstance(agent, str):
        try:
            module, function, arguments = read_spec(agent)
        except ConfigError as e:
            raise ConfigError(
                f"an agent is written module:function or compact(...), and a command has a space in it; got {name}"
            ) from e
        if not module and function not in _INCLUDED:
            raise ConfigError(
                f"unknown agent {function!r}.{did_you_mean(function, _INCLUDED)} Write your own as module:function."
            )
        player = _INCLUDED[function] if not module else load_function(f"{module}:{function}", what="agent")
        if player is command:
            player = command(**arguments)
        elif arguments:
            player = functools.partial(player, **arguments)
    if not callable(player):
        raise ConfigError(f"an agent must be a function of an environment and a model, got {name}")
    try:
        inspect.signature(player).bind(None, None)
    except (TypeError, ValueError) as e:  # ValueError: an argument of a spec that it does not take
        raise ConfigError(f"agent(env, model) must take two arguments; {name}: {e.__cause__ or e}") from e
    return player


@dataclass(frozen=True)
class AgentPolicy:
    """A policy of a model that an agent plays episodes with."""

    policy: ModelPolicy
    """Whose model the agent asks."""
    agent: Agent
    """See `load_agent`."""
    score: Score | None = None
    """Judges an episode when the agent has ended."""

    @property
    def is_async(self) -> bool:
        """Whether the agent is a coroutine function."""
        function = (
            self.agent if inspect.isfunction(self.agent) else getattr(self.agent, "func", type(self.agent).__call__)
        )
        return inspect.iscoroutinefunction(function)

    def start(self, env: gym.Env[Any, str]) -> Actor:
        raise PolicyError("an agent plays whole episodes, so it has no actor; play it with run_episode or evaluate")

    def open(self, env: gym.Env[Any, str]) -> EpisodeModel:
        """Return the model in an episode of `env`; a ConfigError if a wrapper chooses the messages of prompts."""
        choosing = [
            type(layer).__name__
            for layer in layers(env)
            if isinstance(layer, PlacedWrapper) and layer.place in (Place.MESSAGES, Place.CONTEXT, Place.BUDGET)
        ]
        if choosing:
            raise ConfigError(f"an agent makes its own prompts: leave out {' and '.join(choosing)}")
        return self.policy.open(env)


def with_agent(policy: PolicyLike, agent: str | Agent | None, score: str | Score | None = None) -> Policy:
    """Return `policy` as a policy, played by `agent` unless that is None, and judged by `score`.

    Raises:
        ConfigError: There is no such agent, or the policy has no model to ask.
    """
    played = check_policy(policy)
    if agent is None and score is None:
        return played
    if agent is None:
        raise ConfigError("score= (--score) judges what an agent did; give agent= (--agent) too")
    player = load_agent(agent)
    if not isinstance(played, ModelPolicy):
        raise ConfigError(
            "an agent needs a model to ask, such as TransformersPolicy or OpenAIPolicy; "
            f"{type(policy).__name__} is none"
        )
    return AgentPolicy(played, player, None if score is None else load_function(score, what="score"))
