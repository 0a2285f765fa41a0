"""Tasks as rows of a trainer's dataset: arguments as JSON, and the prompts that episodes begin with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import gymnasium as gym

from agent_envs.errors import ConfigError, needs_extra
from agent_envs.messages import Message
from agent_envs.prompts.conversation import Conversation


def as_json(kwargs: Mapping[str, Any] | None) -> str:
    """Return keyword arguments of an environment as JSON, for a dataset's column."""
    try:
        return json.dumps(dict(kwargs or {}), sort_keys=True)
    except TypeError as e:
        raise ConfigError(f"env_kwargs must be JSON values, got {kwargs!r}: {e}") from e


def make_dataset(rows: list[dict[str, Any]]) -> Any:
    """Return a ``datasets.Dataset`` of the rows. Raises MissingExtraError if ``datasets`` is not installed."""
    with needs_extra("trl"):
        from datasets import Dataset
    return Dataset.from_list(rows)


def begin(env: gym.Env[Any, str], *, tools: bool = True) -> Conversation:
    """Return the conversation that an episode begins with; with ``tools``, its system message describes the tools."""
    names = ("instructions", "tool_instructions") if tools else ("instructions",)
    return Conversation("\n\n".join(filter(None, map(env.get_wrapper_attr, names))))


def first_prompts(
    env: gym.Env[Any, str], indices: Iterable[int], *, seed: int, tools: bool = True
) -> Iterator[tuple[int, list[Message]]]:
    """Yield index and first prompt of some tasks, with ``tools`` as for ``begin``, and close the environment."""
    try:
        for index in indices:
            observation, info = env.reset(seed=seed, options={"index": int(index)})
            yield int(index), begin(env, tools=tools).observe(observation, info).new
    finally:
        env.close()
