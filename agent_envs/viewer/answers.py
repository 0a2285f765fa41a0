"""The right answers to the tasks of stored episodes, for people who read them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_envs.errors import AgentEnvsError
from agent_envs.messages import observation_text
from agent_envs.registration import make_env
from agent_envs.text_env import TextEnv
from agent_envs.wrapping.recorded import episode_env, run_settings

_MOST_TASKS = 200_000  # answers that are kept
_MOST_ENVS = 32


class RightAnswers(ExitStack):
    """Looks up right answers: in an episode's own info, or in its task, which the environment starts once more.

    An environment is asked only if a run's file or the episode names it as data may (`recorded_env`), and its task is
    taken for the episode's only if it begins with the same words. Use it in a ``with`` statement.

    Args:
        released: Whether tasks of released data are looked up too, which may take long to open; generated ones always
            are.
        trust: Whether the records may name anything, such as the path of released data.
    """

    def __init__(self, *, released: bool = False, trust: bool = False) -> None:
        super().__init__()
        self._released, self._trust = released, trust
        self._envs: dict[str, gym.Env[Any, Any] | None] = {}
        self._settings = functools.cache(_settings)
        self._known: dict[tuple[Any, ...], tuple[str, str]] = {}

    def find(self, record: Mapping[str, Any], path: Path) -> tuple[str, str]:
        """Return the right answer to an episode's task and where it is from, "" twice if none is known.

        The run's settings beside the episode's file name the environment.
        """
        infos = [record["reset_info"], *(step["info"] for step in record["steps"][-1:])]
        for info in reversed(infos):
            answers = info.get("answers")
            if isinstance(answers, (list, tuple)) and answers and all(isinstance(a, str) for a in answers):
                return "\n".join(answers), "the episode"
        answer = self._asked(record, path)
        return answer, "the task" if answer else ""

    def _asked(self, record: Mapping[str, Any], path: Path) -> str:
        info, index = record["reset_info"], record["index"]
        index = info.get("index") if index is None else index
        if not isinstance(index, int) or index < 0:
            return ""
        if not self._released and info.get("source", "generated") != "generated":
            return ""
        observations = [step["observation"] for step in record["steps"][:1]] or [record["final_observation"]]
        try:
            said = observation_text(observations[0])
        except (AttributeError, KeyError, TypeError):  # another kind of observation, as of another program
            return ""
        key = (str(path), record["env_id"], str(info.get("split")), index, str(info.get("task_id")))
        if key not in self._known and len(self._known) < _MOST_TASKS:
            self._known[key] = self._of_task(record, self._settings(path), index)
        begin, answer = self._known.get(key, ("", ""))
        return answer if begin and begin in said else ""

    def _of_task(self, record: Mapping[str, Any], settings: Mapping[str, Any], index: int) -> tuple[str, str]:
        """Return what the task begins with and its right answer; "" twice if it has none."""
        try:
            named = episode_env(record, settings, trust=self._trust)
            name = f"{named.env_id} {sorted(named.env_kwargs.items())!r}"
            if name not in self._envs:
                self._envs[name] = None
                if len(self._envs) <= _MOST_ENVS:
                    self._envs[name] = self._answering(named.env_id, named.env_kwargs)
            env = self._envs[name]
            if env is not None:
                observation, info = env.reset(seed=0, options={"index": index})
                if info.get("task_id") == record["reset_info"].get("task_id"):
                    return str(observation), str(env.unwrapped.right_answer())  # type: ignore[attr-defined]
        except AgentEnvsError:  # other data or another version than the episode's: its task is not known here
            pass
        return "", ""

    def _answering(self, env_id: str, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any] | None:
        """Make an environment whose tasks have right answers; None if they have none."""
        env = make_env(env_id, **kwargs)
        unwrapped = env.unwrapped
        if isinstance(unwrapped, TextEnv) and type(unwrapped).right_answer is not TextEnv.right_answer:
            self.callback(env.close)
            return env
        env.close()
        return None


def _settings(path: Path) -> dict[str, Any]:
    try:
        return run_settings(path)
    except AgentEnvsError:
        return {}
