"""An environment as a class with a method per tool, for ``GRPOTrainer(environment_factory=...)``."""

from __future__ import annotations

import functools
import json
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from agent_envs.adapters.run import MAX_BROKEN, FailureBudget
from agent_envs.adapters.task_rows import as_json, make_dataset
from agent_envs.episodes.record import StopReason
from agent_envs.errors import ConfigError, check_release
from agent_envs.messages import ToolSpec, content_of
from agent_envs.pictures.picture import ImageObservation
from agent_envs.pictures.png import needs_pillow
from agent_envs.prompts.pictures import fitted
from agent_envs.rewards import total
from agent_envs.rollout.episode_run import close_env
from agent_envs.wrapping.recorded import recorded_env
from agent_envs.wrapping.specs import make_text_env

# What the three tested kinds of vision-language models read a picture from; a text may not forge it.
_CONTROL = re.compile(r"<(?=\|\w+\|>)")
_RESERVED = frozenset({"get_reward", "record", "reset"})


@dataclass
class EnvironmentRecord:
    """The episode of an instance of an environment class; reward functions read it as ``record``."""

    rewards: list[float] = field(default_factory=list)
    """Reward of each step so far."""
    info: dict[str, Any] = field(default_factory=dict)
    """The environment's last info."""
    done: bool = False
    """Whether the episode has ended."""
    error: str | None = None
    """The traceback, if the environment is broken."""


class _Environment:
    """One episode after another, for TRL; subclasses have a method per tool and no other public one.

    TRL has no word for the end of its use, so an environment is made for an episode and closed with it.
    """

    _choice: tuple[str, str, tuple[str, ...]]  # id, keyword arguments as JSON, wrappers
    _trust: bool
    _specs: tuple[Any, ...]

    def __init__(self) -> None:
        self.record = EnvironmentRecord()
        self._env: gym.Env[Any, str] | None = None
        for spec in self._specs:
            name = spec["function"]["name"]
            # TRL lists the tools of the class and takes them from the instance: the specification itself, which has
            # more than type hints express
            self.__dict__[name] = _CallableSpec(spec, functools.partial(type(self)._call, self, name))

    def reset(self, *, index: int | None = None, env_kwargs: str | None = None, **row: Any) -> str | list[Any]:
        """Start the task of a dataset row and return what TRL appends to its prompt: text, or parts with pictures.

        Raises:
            ConfigError: The row has no task, or its environment does not fit the class.
        """
        if index is None:
            raise ConfigError(
                "a row needs the column 'index', since the compared episodes of a group must play the same task; "
                "make the dataset with environment_dataset()"
            )
        self._close()
        self.record = EnvironmentRecord()
        row = {"env_kwargs": json.loads(env_kwargs or "{}")}
        known = recorded_env(row, "a row of the dataset", env_id=self._choice[0], trust=self._trust)
        env_id, common, wrappers = self._choice
        try:  # with a seed, so that an environment draws the same for a whole group
            self._env = make_text_env(env_id, {**json.loads(common), **known.env_kwargs}, wrappers)
            if tuple(self._env.get_wrapper_attr("tools")) != self._specs:
                raise ConfigError(f"with {known.env_kwargs!r}, {env_id} has other tools than the environment class")
            observation, self.record.info = self._env.reset(seed=0, options={"index": int(index)})
        except (IndexError, ConfigError):
            self._close()
            raise
        except Exception:  # noqa: BLE001  a broken environment costs an episode, not the run
            self._break()
            return ""
        if isinstance(observation, list):
            self._close()
            raise ConfigError(
                "these wrappers return whole prompts as messages, but with environment_factory TRL keeps the "
                "conversation; use EpisodeTrainer"
            )
        return _shown(observation)

    def _tool(self, **arguments: Any) -> str | list[Any]:
        """Stand in the class for a tool, which an instance has for itself."""
        raise NotImplementedError

    def _call(self, name: str, arguments: dict[str, Any]) -> str | list[Any]:
        if self._env is None:
            return "The episode has ended."
        return self._step(self._env.get_wrapper_attr("format_call")(name, arguments))

    def _step(self, text: str) -> str | list[Any]:
        assert self._env is not None
        try:
            observation, reward, terminated, truncated, self.record.info = self._env.step(text)
        except Exception:  # noqa: BLE001  as in reset
            self._break()
            return "error: the environment is not available"
        self.record.rewards.append(float(reward))
        if terminated or truncated:
            self._close()
        return _shown(observation)

    def _break(self) -> None:
        self.record.error = traceback.format_exc()
        self._close()

    def _close(self) -> None:
        """End the episode."""
        self.record.done = True
        if self._env is not None:
            close_env(self._env)
            self._env = None


def _shown(observation: str | ImageObservation) -> str | list[Any]:
    """Return an observation as TRL takes it: text, or a list of parts with pictures of Pillow's."""
    content = content_of(observation)
    if isinstance(content, str):
        return content
    pillow = needs_pillow()
    return [
        {"type": "text", "text": _CONTROL.sub("< ", part["text"])}
        if part["type"] == "text"
        else {"type": "image", "image": pillow.fromarray(fitted(part["image"]))}
        for part in content
    ]


class _CallableSpec(dict[str, Any]):
    """A tool's full specification that can also be called.

    Chat templates take tools as such dictionaries, or as functions whose schema they read from type hints. This is
    both: the template renders what it renders for every other actor, and the trainer can call it.
    """

    def __init__(self, spec: ToolSpec, call: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(spec)
        self.__name__ = spec["function"]["name"]
        self._call = call

    def __call__(self, /, **arguments: Any) -> Any:
        return self._call(arguments)


def environment_class(
    env_id: str,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    trust: bool = False,
    max_broken: float = MAX_BROKEN,
) -> type[_Environment]:
    """Return a class for ``GRPOTrainer(environment_factory=...)``, with ``reset`` and one public method per tool.

    A method is the tool's whole specification too, which TRL shows to the model. TRL makes one instance per completion
    of a batch; each plays one episode after another, and they share heavy objects. Score them with ``episode_reward``,
    which closes their environments. One with commands works in the wrapper ``"AsTool"``; one with pictures needs a
    vision-language model, with its processor as the trainer's ``processing_class``. With ``trust``, the rows' arguments
    may name code and servers (docs/security.md). If more than ``max_broken`` of the episodes of three batches break,
    ``episode_reward`` stops the run.

    Raises:
        ConfigError: The environment does not exist or has no tools, a tool's name is reserved by TRL or this class, or
            the version of TRL is not supported.
    """
    check_release("trl", "trl")
    kwargs = as_json(env_kwargs)
    with closing(make_text_env(env_id, json.loads(kwargs), wrappers)) as env:
        specs = tuple(env.get_wrapper_attr("tools"))
    if not specs:
        raise ConfigError(f"{env_id} has no tools: its actions are text. Use EpisodeTrainer, or wrappers=['AsTool']")
    methods = {spec["function"]["name"]: _Environment._tool for spec in specs}
    for name in methods:
        if name in _RESERVED or name.startswith("_"):
            raise ConfigError(f"the tool {name!r} cannot be a method: TRL or the environment class uses that name")
    title = re.sub(r"\W", "", env_id.split("/")[-1])
    about = {
        "_failures": FailureBudget(max_broken),
        "_choice": (env_id, kwargs, tuple(wrappers)),
        "_specs": specs,
        "_trust": trust,
    }
    return type(title, (_Environment,), {**methods, **about})


def environment_dataset(
    env_id: str, indices: Iterable[int], *, env_kwargs: Mapping[str, Any] | None = None, wrappers: Sequence[str] = ()
) -> Any:
    """Return tasks for ``environment_class``: a ``datasets.Dataset`` with the columns prompt, index, env_kwargs.

    The prompt contains the instructions; the question follows at ``reset``. A row's keyword arguments take precedence
    over the class's, so ``env_kwargs={"split": "test"}`` makes a held-out dataset.
    """
    kwargs = as_json(env_kwargs)
    with closing(make_text_env(env_id, json.loads(kwargs), wrappers)) as env:
        instructions = env.get_wrapper_attr("instructions")
    system = [{"role": "system", "content": instructions}] if instructions else []
    prompt = [*system, {"role": "user", "content": ""}]
    return make_dataset([{"prompt": prompt, "index": int(index), "env_kwargs": kwargs} for index in indices])


def episode_reward(
    completions: Sequence[Any], environments: Sequence[Any] | None = None, log_metric: Any = None, **kwargs: Any
) -> list[float | None]:
    """Return the return of each episode, for ``GRPOTrainer(reward_funcs=...)``; None if the environment broke.

    The episode ends here: a last message without a call is the answer, which the environment now scores. Logs the
    metric ``env/success``.

    Args:
        completions: Messages, or text, of each episode.
        environments: Instances of an environment class, one per episode.

    Raises:
        ConfigError: The trainer has no environments.
        BackendError: Too many episodes of the environment class broke.
    """
    if environments is None:
        raise ConfigError("episode_reward needs environment_factory=environment_class(...)")
    for environment, completion in zip(environments, completions, strict=True):
        text = isinstance(completion, str) or not completion
        said = [{"role": "assistant", "content": completion}] if text else completion
        answered = said[-1]["role"] == "assistant" and not said[-1].get("tool_calls")
        if answered and not environment.record.done:  # otherwise it has ended, or TRL truncated it before an answer
            environment._step(str(said[-1].get("content") or ""))
        environment._close()
    if records := [environment.record for environment in environments]:
        ended = [(StopReason.ERROR if r.error else StopReason.TERMINATED, r.error or None) for r in records]
        environments[0]._failures.note(ended)
    solved = [bool(record.info.get("success", False)) for record in records if not record.error]
    if log_metric is not None and solved:
        log_metric("env/success", sum(solved) / len(solved))
    return [None if record.error else total(record.rewards) for record in records]
