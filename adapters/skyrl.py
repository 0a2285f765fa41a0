"""Environments of this package in SkyRL-Gym, and dataset rows for SkyRL's trainer.

    import agent_envs.adapters.skyrl as skyrl

    skyrl.register()                                                    # in every process that makes environments
    rows = skyrl.make_rows("AgentR1/GSM8KTool-v0", range(1000))         # a parquet or JSON dataset for SkyRL
    env = skyrl_gym.make("agentr1", extras=rows[0])                     # as SkyRL's generator does for each row

SkyRL appends to one conversation per episode and tokenizes it itself, so wrappers that rebuild the prompt are rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_envs.adapters.by_hand import EpisodeByHand
from agent_envs.adapters.task_rows import as_json, begin, first_prompts
from agent_envs.checks import choice
from agent_envs.episodes.plain import to_json_types
from agent_envs.errors import ConfigError, check_release, needs_extra
from agent_envs.messages import Message, Observation
from agent_envs.wrapping.recorded import recorded_env
from agent_envs.wrapping.specs import make_text_env

with needs_extra("suites", "skyrl-gym"):
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

check_release("skyrl-gym", "suites")

ENV_CLASS = "agentr1"
"""The name under which ``register`` registers ``SkyRLTextEnv``; the rows' ``env_class``."""

_READER = "the adapter to SkyRL"
_SETTINGS = ("env_id", "env_kwargs", "wrappers", "index", "seed", "tool_role")


def register(env_class: str = ENV_CLASS) -> None:
    """Register the environments for ``skyrl_gym.make``; calling it again does nothing.

    Raises:
        ConfigError: The name is taken by another environment.
    """
    entry_point = f"{SkyRLTextEnv.__module__}:{SkyRLTextEnv.__name__}"
    known = skyrl_gym.registry.get(env_class)
    if known is None:
        skyrl_gym.register(id=env_class, entry_point=entry_point)
    elif known.entry_point != entry_point:
        raise ConfigError(f"SkyRL-Gym already has another environment {env_class!r}; choose another env_class")


def make_rows(
    env_id: str,
    indices: Iterable[int],
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    seed: int = 0,
    env_class: str = ENV_CLASS,
    tool_role: str = "tool",
) -> list[dict[str, Any]]:
    """Return dataset rows for tasks of an environment, with their actual first prompts.

    Args:
        env_id: As for ``gymnasium.make``.
        indices: Task indices within the split that ``env_kwargs`` names.
        env_kwargs: Keyword arguments of the environment (``split``, ``data``...), JSON values.
        wrappers: Specs such as ``FormatReward(weight=0.1)``, innermost first.
        seed: Seed of every reset: with the index it determines how an episode begins.
        env_class: The name given to ``register``.
        tool_role: Role of tool results: ``"tool"``, or ``"user"`` for chat templates without it.

    Returns:
        One dictionary per index. SkyRL uses ``prompt`` and ``env_class``; the rest are the environment's ``extras``.

    Raises:
        ConfigError: The environment does not exist, or the keyword arguments are not JSON values.

    >>> row = make_rows("AgentR1/GSM8K-v0", [3])[0]
    >>> row["env_class"], [message["role"] for message in row["prompt"]]
    ('agentr1', ['system', 'user'])
    """
    choice("tool_role", tool_role, ("tool", "user"))
    settings = {"env_kwargs": as_json(env_kwargs), "wrappers": json.dumps(list(wrappers))}
    env = make_text_env(env_id, dict(env_kwargs or {}), wrappers, reader=_READER)
    return [
        {
            "data_source": env_id,
            "prompt": prompt,
            "env_class": env_class,
            "reward_spec": {"method": "environment", "ground_truth": ""},
            "extra_info": {"env_id": env_id, **settings, "index": index, "seed": seed, "tool_role": tool_role},
        }
        # SkyRL passes no tools= to chat templates, so the tools are described in words
        for index, prompt in first_prompts(env, indices, seed=seed)
    ]


class SkyRLTextEnv(BaseTextEnv):
    """One episode of an environment, as SkyRL plays it: ``init`` once, then ``step`` until done.

    ``extras`` is the row: its ``extra_info`` names environment and task, and ``max_turns`` is the trainer's limit.
    ``env_config``, from SkyRL's configuration, has defaults for ``extra_info``. With ``trust: true`` in it, rows may
    name code and servers (docs/security.md). Its ``agent`` plays the episodes, if its prompts only ever append to one
    conversation; their reward comes with the last step.

    Raises:
        ConfigError: The environment is not named or does not exist.
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        extras, defaults = extras or {}, env_config or {}
        row = extras.get("extra_info") or {}
        settings = {name: each for name, each in {**defaults, **row}.items() if name in _SETTINGS and each is not None}
        if "env_id" not in settings:
            raise ConfigError("the row's extra_info has no env_id; make rows with agent_envs.adapters.skyrl.make_rows")
        self.max_turns = int(extras.get("max_turns") or 0)
        self.tool_role = str(settings.get("tool_role", "tool"))
        kwargs, wrappers = _decoded(settings.get("env_kwargs")), _decoded(settings.get("wrappers"))
        record = {"env": row.get("env_id"), **{name: _decoded(row.get(name)) for name in ("env_kwargs", "wrappers")}}
        default = "" if row.get("env_id") else settings["env_id"]
        recorded_env(record, "the row's extra_info", env_id=default, trust=bool(defaults.get("trust", False)))
        self.env = make_text_env(settings["env_id"], dict(kwargs or {}), list(wrappers or ()), reader=_READER)
        self._index, self._seed = settings.get("index"), settings.get("seed")
        self._conversation = begin(self.env)
        self._return, self._invalid = 0.0, 0
        self._info: dict[str, Any] = {}
        self._ended = {"terminated": False, "truncated": False}
        self._agent = defaults.get("agent")
        self._hand: EpisodeByHand | None = None
        self._said: list[Any] = []  # what an agent's model was shown and said

    def init(self, prompt: Sequence[Mapping[str, Any]]) -> tuple[list[Message], dict[str, Any]]:
        """Start the row's task. The prompt is rebuilt and equals the one that ``make_rows`` wrote."""
        options = None if self._index is None else {"index": int(self._index)}
        if self._agent is not None:
            self._hand = EpisodeByHand(self.env, self._agent, seed=self._seed, options=options)
            return self._asked(self._hand.next()), {"index": self._index}
        observation, self._info = self.env.reset(seed=self._seed, options=options)
        return self._shown(observation, self._info), to_json_types(self._info)

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Execute the model's text.

        Returns:
            ``observations``: the new messages, none when the episode is over; ``reward`` of this step; ``done``; and
            ``metadata``: the environment's info with ``terminated``, ``truncated`` and, at the end,
            ``final_observation``.
        """
        self.turns += 1
        if self._hand is not None:
            return self._agent_step(self._hand, action)
        self._conversation.respond(action)
        observation, reward, terminated, truncated, self._info = self.env.step(action)
        done = terminated or truncated or 0 < self.max_turns <= self.turns
        self._return += float(reward)
        self._invalid += bool(self._info.get("invalid_action", False))
        self._ended = {"terminated": bool(terminated), "truncated": bool(done and not terminated)}
        metadata = {**to_json_types(self._info), **self._ended}
        if done:
            metadata["final_observation"] = observation
        new = [] if done else self._shown(observation, self._info)
        return BaseTextEnvStepOutput(observations=new, reward=float(reward), done=done, metadata=metadata)

    def _agent_step(self, hand: EpisodeByHand, text: str) -> BaseTextEnvStepOutput:
        self._said.append({"role": "assistant", "content": text})
        new = self._asked(hand.next(text))
        if hand.episode is None and not 0 < self.max_turns <= self.turns:
            return BaseTextEnvStepOutput(observations=new, reward=0.0, done=False, metadata={})
        hand.close()
        episode = hand.episode
        assert episode is not None
        last = episode.steps[-1] if episode.steps else None
        self._info, self._return = dict(last.info) if last is not None else {}, float(episode.reward)
        self._invalid = sum(bool(step.info.get("invalid_action", False)) for step in episode.steps)
        self._ended = {"terminated": bool(last and last.terminated), "truncated": not (last and last.terminated)}
        metadata = {**to_json_types(self._info), **self._ended}
        return BaseTextEnvStepOutput(observations=[], reward=self._return, done=True, metadata=metadata)

    def _asked(self, prompt: list[dict[str, Any]] | None) -> list[Any]:
        """Return what a prompt adds to the conversation."""
        before, self._said = self._said, self._said if prompt is None else list(prompt)
        if prompt is not None and prompt[: len(before)] != before:
            raise ConfigError(
                "SkyRL can only append to one conversation, and this agent began another one: train it with verl, TRL "
                "or the PyTorch loop"
            )
        return [] if prompt is None else prompt[len(before) :]

    def close(self) -> None:
        """Close the environment."""
        if self._hand is not None:
            self._hand.close()
        self.env.close()

    def get_metrics(self) -> dict[str, Any]:
        """Return the episode's metrics, which SkyRL averages."""
        return {
            "success": float(self._info.get("success", False)),
            "score": float(self._info.get("score", 0.0)),
            "return": self._return,
            "steps": self.turns,
            "invalid_actions": self._invalid,
            "truncated": float(self._ended["truncated"]),
        }

    def _shown(self, observation: Observation, info: Mapping[str, Any]) -> list[Message]:
        begun = bool(self._conversation.messages)
        new, fresh = self._conversation.observe(observation, info)
        if fresh and begun:
            raise ConfigError(
                "a wrapper rebuilds the prompt, but SkyRL can only append to the conversation: leave out the wrapper"
            )
        if self.tool_role == "tool":
            return new
        return [{**message, "role": "user"} if message["role"] == "tool" else message for message in new]


def _decoded(value: Any) -> Any:
    """A row's value: JSON, which datasets store unchanged, or the object itself."""
    return json.loads(value) if isinstance(value, str) else value
