"""The record of an episode while it is played: whoever steps the environment says what came of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym

from agent_envs.episodes.plain import EpisodeSize, own_copy, recorded
from agent_envs.episodes.record import MAX_EPISODE_BYTES, Episode, Step, StopReason
from agent_envs.messages import Observation, ToolSpec
from agent_envs.policies.policy import Response
from agent_envs.registration import env_name
from agent_envs.spaces import kept_action


@dataclass
class EpisodeBuilder:
    """Builds the record of an episode: `reset`, then `transition` and `add` for each action, then `end`.

    It holds values and no environment, so that it can be copied with the state of one.

    >>> EpisodeBuilder("Toy-v0", options={"index": 3}).end(StopReason.ERROR, "no such task").index
    3
    """

    env_id: str = ""
    seed: int | None = None
    """Seed of the reset."""
    options: Mapping[str, Any] | None = None
    """Options of the reset."""
    episode_id: str | None = None
    """The episode's name; None for a random one, which every record has for itself."""
    group_id: str | None = None
    """A name shared with the episodes it is compared with; None for the task's id."""
    keep: Callable[[Any], Any] = own_copy
    """Makes of an info what the record holds."""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    reset_info: dict[str, Any] = field(default_factory=dict)
    observation: Observation = ""
    """The latest observation."""
    steps: list[Step] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)
    """See `Episode.roles`."""
    size: EpisodeSize = field(default_factory=EpisodeSize)

    def reset(self, env: gym.Env[Any, Any], observation: Any, info: Mapping[str, Any]) -> None:
        """Take what a reset returned."""
        self.env_id = env_name(env)
        self.observation, self.reset_info = recorded(observation), self.keep(info)
        self.instructions = env.get_wrapper_attr("instructions")
        self.tools = tuple(env.get_wrapper_attr("tools")) if env.has_wrapper_attr("tools") else ()

    def transition(
        self, env: gym.Env[Any, Any], action: str, result: tuple[Any, ...], response: Response | None = None
    ) -> Step:
        """Return the step that an action was, whose `result` is what `step` returned, without adding it.

        The tokens of the policy's `response` are recorded with it.
        """
        _, reward, terminated, truncated, info = result
        step = Step(
            observation=self.observation,
            action=kept_action(action, env.action_space),
            reward=float(reward),
            terminated=bool(terminated),
            # Gymnasium's TimeLimit may report both at its last step; then the task's own end counts.
            truncated=bool(truncated and not terminated),
            info=self.keep(info),
        )
        return step if response is None else replace(step, **token_fields(response))

    def add(self, step: Step, observation: Any) -> None:
        """Add a step and the observation that it led to."""
        self.steps.append(step)
        self.observation = recorded(observation)
        self.size.add(step.observation, step.action, step.info)

    @property
    def reason(self) -> StopReason | None:
        """Why the episode is over after the last step; None if it goes on."""
        last = self.steps[-1] if self.steps else None
        if last is not None and (last.terminated or last.truncated):
            return StopReason.at_end(last.terminated, last.info)
        return StopReason.SIZE_LIMIT if self.size.bytes > MAX_EPISODE_BYTES else None

    def end(self, reason: StopReason, error: str | None = None) -> Episode:
        """Return the record. Where no step ended the episode, the last one counts as truncated."""
        episode = self.episode(reason, error)
        if not self.steps or reason in (StopReason.TERMINATED, StopReason.TRUNCATED):
            return episode
        last = replace(self.steps[-1], truncated=not self.steps[-1].terminated)
        return replace(episode, steps=(*self.steps[:-1], last))

    def episode(self, reason: StopReason, error: str | None = None) -> Episode:
        """Return the record with the steps as they are."""
        task_id = str(self.reset_info.get("task_id", ""))
        return Episode(
            env_id=self.env_id,
            episode_id=uuid.uuid4().hex if self.episode_id is None else self.episode_id,
            group_id=task_id if self.group_id is None else self.group_id,
            seed=self.seed,
            index=self.reset_info.get("index", (self.options or {}).get("index")),
            instructions=self.instructions,
            tools=self.tools,
            reset_info=self.reset_info,
            steps=tuple(self.steps),
            final_observation=self.observation,
            stop_reason=reason,
            error=error,
            roles=self.roles,
        )


def token_fields(response: Response) -> dict[str, Any]:
    """Return the fields of a step that say what a response cost and which tokens it has."""
    names = ("prompt_ids", "response_ids", "response_logprobs")
    tokens: Any = {name: tuple(values) for name in names if (values := getattr(response, name)) is not None}
    usage = None if response.usage is None else dict(response.usage)
    return {"usage": usage, "prompt_pictures": tuple(response.pictures), **tokens}
