"""Records every episode of an environment as a line of an ``episodes.jsonl``, whoever steps it."""

from __future__ import annotations

import os
import socket
import string
import traceback
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs import checks
from agent_envs.episodes.builder import EpisodeBuilder
from agent_envs.episodes.plain import to_json_types
from agent_envs.episodes.record import StopReason, append_episode
from agent_envs.errors import ConfigError
from agent_envs.pictures.png import needs_pillow
from agent_envs.policies.policy import Response
from agent_envs.registration import env_name
from agent_envs.spaces import shows_pictures
from agent_envs.wrapping.order import Place, PlacedWrapper


class _Record(EpisodeBuilder):
    """The record of an episode, with the response that its next step carries out, and the error of its last one."""

    response: Response | None = None
    error: str | None = None


class RecordEpisodes(PlacedWrapper):
    """Append every episode to a file when it ends, as one line that ``agent_envs.read_episodes`` reads.

    The wrapper records what passes through it: put it outermost for what the policy sees, innermost for the bare task.
    An episode that is reset or closed before its end has the stop reason "cut", or "error" with the traceback if its
    last step raised one; a reset without a step is not recorded. An endless one is recorded up to
    ``agent_envs.episodes.record.MAX_EPISODE_BYTES`` of text and pictures, as "size_limit". Under ``run_episode`` and
    ``run_episodes`` the reason is the rollout's own (a time-out, an empty answer), and sampled tokens are recorded.

    Each line is written at once, whole or not at all, under a lock: any number of environments, threads and processes
    may share a file, a killed process loses only its running episode, and an existing file is extended. Pictures are
    kept in ``pictures`` beside the file, each once.

    Args:
        path: The file. ``{env}``, ``{host}`` and ``{pid}`` stand for the environment's id, the machine and the process;
            use ``"run/{host}-{pid}.jsonl"`` on machines without shared file locks. A folder stands for the
            ``episodes.jsonl`` in it.
        tokens: Whether to record tokens and their log-probabilities if the rollout reports them.

    Raises:
        ConfigError: The path cannot be written, or the environment is not a text environment.
        MissingExtraError: The environment shows pictures, and Pillow is not installed.

    >>> import agent_envs, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> env = RecordEpisodes(gym.make("AgentR1/GSM8K-v0"), path=f"{folder.name}/{{env}}.jsonl")
    >>> _ = env.reset(seed=0)
    >>> _ = env.step("#### 1")
    >>> [str(e.stop_reason) for e in agent_envs.read_episodes(f"{folder.name}/AgentR1-GSM8K-v0.jsonl")]
    ['terminated']
    >>> folder.cleanup()
    """

    place = Place.ANYWHERE
    harmless_arguments = ("path", "tokens")

    def __init__(
        self, env: gym.Env[Any, Any], path: str | os.PathLike[str] = "episodes.jsonl", tokens: bool = True
    ) -> None:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise ConfigError(f"path must be the path of a file, got {checks.shown(path)}")
        if not env.has_wrapper_attr("instructions"):
            raise ConfigError(f"RecordEpisodes is for text environments, and {env_name(env)} has no instructions")
        self.path = os.fspath(path)
        self.tokens = checks.boolean("tokens", tokens)
        super().__init__(env, path=self.path, tokens=tokens)
        if shows_pictures(env.observation_space):
            needs_pillow()
        self._running: list[_Record] = []  # one episode or none; whoever pops it writes it
        self._check_target()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; an unfinished episode is recorded as cut."""
        self._cut()
        self._check_target()
        observation, info = self.env.reset(seed=seed, options=options)
        record = _Record(seed=None if seed is None else int(seed), options=dict(options or {}), keep=to_json_types)
        record.reset(self, observation, info)
        self._running = [record]
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        record = self._running[0] if self._running else None
        try:
            result = self.env.step(action)
        except Exception:
            if record is not None:
                record.error = traceback.format_exc()
            raise
        if record is not None:
            step = record.transition(self.env, str(action), result, record.response if self.tokens else None)
            record.response = record.error = None
            record.add(step, result[0])
            if record.reason is not None:
                self.note_end(record.reason)
        return result

    def note_response(self, response: Response) -> None:
        """Take note of the policy's response, whose tokens belong to the next step; rollouts call this."""
        for record in self._running:
            record.response = response

    def note_end(self, reason: StopReason, error: str | None = None) -> None:
        """Record the running episode, if there is one, with this stop reason; rollouts call this.

        A line that cannot be written is a BackendError.
        """
        try:
            record = self._running.pop()
        except IndexError:
            return
        append_episode(self._target(), record.end(reason, error))

    def forget(self) -> None:
        """Record nothing until the next reset, or until an earlier snapshot is restored."""
        self._running = []

    def close(self) -> None:
        """Record an unfinished episode as cut, and close the environment."""
        try:
            self._cut()
        finally:
            super().close()

    def _cut(self) -> None:
        for record in list(self._running):
            if record.error is not None:
                self.note_end(StopReason.ERROR, record.error)
            elif record.steps:
                self.note_end(StopReason.CUT)
        self._running = []

    def _check_target(self) -> None:
        target = self._target()
        existing = next(path for path in (target, *target.absolute().parents) if path.exists())
        if not (existing.is_file() if existing == target else existing.is_dir()) or not os.access(existing, os.W_OK):
            raise ConfigError(f"{target} cannot be written")

    def _target(self) -> Path:
        """Return the file that the path stands for in this process."""
        values = {"env": env_name(self).replace("/", "-"), "host": socket.gethostname(), "pid": os.getpid()}
        try:
            for _, name, _, _ in string.Formatter().parse(self.path):
                if name is not None and name not in values:
                    raise ValueError(f"there is no {{{name}}}")
            path = Path(self.path.format(**values)).expanduser()
            if path.suffix == ".gz":
                raise ValueError("lines cannot be added to a compressed file")
            if "\0" in str(path):
                raise ValueError("a path cannot contain a NUL")
            return path / "episodes.jsonl" if path.is_dir() or self.path.endswith("/") else path
        except (OSError, RuntimeError, ValueError) as e:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise ConfigError(f"path {self.path!r:.300}: {e}; it may contain {known}") from e
