"""A policy that acts at random."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs import checks
from agent_envs.messages import Observation
from agent_envs.policies.policy import episode_rng
from agent_envs.registration import available_actions

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
        self._write = env.get_wrapper_attr("format_command") if env.has_wrapper_attr("format_command") else str
        self._rng: np.random.Generator | None = None

    def act(self, observation: Observation, info: dict[str, Any]) -> str:
        if self._rng is None:
            self._rng = episode_rng(self._seed, info["task_id"])
            self._space.seed(int(self._rng.integers(2**31)))
        if actions := [action for action in available_actions(self._env) or () if "..." not in action]:
            return self._write(actions[self._rng.integers(len(actions))])
        if self._tools and self._rng.random() < _CALL_SHARE:
            function = self._tools[self._rng.integers(len(self._tools))]
            arguments = random_value(function["parameters"], self._rng)
            return self._env.get_wrapper_attr("format_call")(function["name"], arguments)
        return self._space.sample() or " "  # an empty text would end the episode


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
