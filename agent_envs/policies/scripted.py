"""Policies that ask no model: an environment's own expert, random actions, given ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs import checks
from agent_envs.errors import ConfigError, PolicyError
from agent_envs.messages import Observation, observation_text
from agent_envs.policies.policy import Action, episode_rng
from agent_envs.registration import available_actions


class ExpertPolicy:
    """Play ``expert_action()``, or ``demo_action(rng, noise)`` with ``noise`` above 0.

    Noisy demonstrations are well-formed but sometimes wrong: they show the format without giving the solution away. The
    noise of an episode depends only on ``seed`` and the task, so that a run does not depend on the concurrency.

    Args:
        noise: Share of actions that are wrong on purpose, from 0 to 1.
        seed: Seed of the noise, at least 0.
    """

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self.noise = checks.number("noise", noise, minimum=0, maximum=1)
        self.seed = checks.integer("seed", seed, minimum=0)

    def start(self, env: gym.Env[Any, str]) -> _ExpertActor:
        return _ExpertActor(self, env)

    def with_seed(self, seed: int) -> ExpertPolicy:
        """Return the policy with another seed."""
        return ExpertPolicy(self.noise, seed)


class _ExpertActor:
    def __init__(self, policy: ExpertPolicy, env: gym.Env[Any, str]) -> None:
        self._policy, self._env = policy, env
        self._rng: np.random.Generator | None = None

    def act(self, observation: Observation, info: dict[str, Any]) -> str:
        if self._policy.noise > 0.0:
            if self._rng is None:
                self._rng = episode_rng(self._policy.seed, info["task_id"])
            action = self._env.get_wrapper_attr("demo_action")(self._rng, self._policy.noise)
        else:
            action = self._env.get_wrapper_attr("expert_action")()
        if action is None:
            source, todo = info.get("source", ""), 'Generated tasks have one: data="generated".'
            if source == "generated":
                todo = "An expert is the environment's expert_action(); or play another policy."
            raise PolicyError(
                f"{type(self._env.unwrapped).__name__} has no expert for task {info['task_id']!r} "
                f"(source {source!r}). {todo}"
            )
        return action


_CALL_SHARE = 0.75
_TEXT_ALPHABET = list("0123456789+-*/(). abcdefghijklmnopqrstuvwxyz")


class RandomPolicy:
    """Play random actions.

    An action is one of the environment's ``available_actions()`` that take no free text. If there are none, it is most
    often a well-formed call of a tool with random arguments, and without tools a sample of the action space.

    The actions of an episode depend only on ``seed`` and the task, so that a run does not depend on the concurrency.

    Args:
        seed: The seed, at least 0.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = checks.integer("seed", seed, minimum=0)

    def start(self, env: gym.Env[Any, str]) -> _RandomActor:
        return _RandomActor(env, self.seed)

    def with_seed(self, seed: int) -> RandomPolicy:
        """Return the policy with another seed."""
        return RandomPolicy(seed)


class _RandomActor:
    def __init__(self, env: gym.Env[Any, str], seed: int) -> None:
        self._env, self._seed = env, seed
        # A copy, since the environment's own space continues its sequence from episode to episode.
        self._space = copy.deepcopy(env.action_space)
        self._tools = [spec["function"] for spec in env.get_wrapper_attr("tools")]
        self._rng: np.random.Generator | None = None

    def act(self, observation: Observation, info: dict[str, Any]) -> str:
        if self._rng is None:
            self._rng = episode_rng(self._seed, info["task_id"])
            self._space.seed(int(self._rng.integers(2**31)))
        if actions := listed_actions(self._env):
            return actions[self._rng.integers(len(actions))]
        if self._tools and self._rng.random() < _CALL_SHARE:
            function = self._tools[self._rng.integers(len(self._tools))]
            arguments = random_value(function["parameters"], self._rng)
            return self._env.get_wrapper_attr("format_call")(function["name"], arguments)
        return self._space.sample() or " "  # an empty text would end the episode


def listed_actions(env: gym.Env[Any, Any]) -> list[str]:
    """Return those of an environment's ``available_actions()`` that take no free text, in the form that it reads."""
    write = env.get_wrapper_attr("format_command") if env.has_wrapper_attr("format_command") else str
    return [write(action) for action in available_actions(env) or () if "..." not in action]


def random_value(schema: dict[str, Any], rng: np.random.Generator) -> Any:
    """Return a random value that fits a JSON schema.

    Supported are type, enum, const, anyOf, oneOf, properties, required, items, prefixItems and the limits of numbers,
    lengths and counts.

    >>> random_value({"enum": ["a"]}, np.random.default_rng(0))
    'a'
    """
    if "enum" in schema:
        return schema["enum"][rng.integers(len(schema["enum"]))]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return random_value(schema[key][rng.integers(len(schema[key]))], rng)
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        kind = kind[rng.integers(len(kind))]
    if kind == "object":
        required = schema.get("required", [])
        return {
            name: random_value(entry, rng)
            for name, entry in schema.get("properties", {}).items()
            if name in required or rng.random() < 0.5
        }
    if kind == "array":
        if "prefixItems" in schema:
            return [random_value(entry, rng) for entry in schema["prefixItems"]]
        low = schema.get("minItems", 0)
        count = int(rng.integers(low, min(schema.get("maxItems", low + 3), low + 3) + 1))
        return [random_value(schema.get("items", {}), rng) for _ in range(count)]
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema["maximum"] - 100 if "maximum" in schema else 0)
        high = schema.get("maximum", low + 100)
        return int(rng.integers(low, high + 1)) if kind == "integer" else float(rng.uniform(low, high))
    if kind == "boolean":
        return bool(rng.integers(2))
    if kind == "null":
        return None
    low = schema.get("minLength", 1)
    count = int(rng.integers(low, min(schema.get("maxLength", low + 12), low + 12) + 1))
    return "".join(rng.choice(_TEXT_ALPHABET, count))


Script = Sequence[Action] | Callable[[Any, dict[str, Any]], Action]


class ScriptedPolicy:
    """Play the same actions in every episode, or those that a function returns.

    Args:
        actions: The actions in order, each a string or a ``Response``; or a function ``(observation, info) -> action``,
            which is called from many threads at once if episodes run concurrently.

    An episode that needs more actions raises ``PolicyError``, which a rollout records as ``StopReason.ERROR``.
    """

    def __init__(self, actions: Script) -> None:
        if isinstance(actions, str):
            raise ConfigError(f"actions must be a list or a function, got a string; write [{actions!r:.80}]")
        self._actions: Script = actions if callable(actions) else tuple(actions)

    def start(self, env: gym.Env[Any, str]) -> _ScriptedActor:
        return _ScriptedActor(self._actions)


class _ScriptedActor:
    def __init__(self, actions: Script) -> None:
        self._actions = actions
        self._step = 0

    def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        if callable(self._actions):
            return self._actions(observation, info)
        if self._step == len(self._actions):
            raise PolicyError(
                f"the script has {len(self._actions)} actions, but task {info['task_id']!r} continues with "
                f"{observation_text(observation)[:200]!r}"
            )
        self._step += 1
        return self._actions[self._step - 1]
