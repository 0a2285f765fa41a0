"""What environments of other packages share: tasks by seed, problems, games, and the refusal of what would run text."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_envs.checks import string
from agent_envs.datasets.generated_tasks import GeneratedTasks
from agent_envs.envs.replayed import ReplayedEnv
from agent_envs.errors import ConfigError, did_you_mean, first_line
from agent_envs.problem_env import Problem, ProblemEnv

FIRST_SEEDS = {"train": 0, "validation": 10_000_000, "test": 20_000_000}
"""First seed of each split: the seeds of two splits are further apart than a split is long."""

_RUN_TEXT = frozenset({"eval", "exec", "parse_expr", "sympify"})


@dataclass(frozen=True, slots=True)
class PosedTask(Problem):
    """A problem of another package, answered in one step; `answer` is empty where the package gives none."""

    source: Mapping[str, Any]
    """What the package scores an answer with."""


class PosedTasks(GeneratedTasks[PosedTask]):
    """The problems of a split. A subclass defines ``get``."""

    def content(self, index: int) -> Any:
        return [self[index].question, self[index].answer]


class PosedEnv(ProblemEnv):
    """A problem of another package, whose answer stands between tags."""

    instructions = "Solve the problem. Write the final answer alone between <answer> and </answer>."

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_generated(self.data)

    def expert_action(self) -> str | None:
        """Return the package's own answer; None where it has none."""
        return f"<answer>{self.task.answer}</answer>" if self.task.answer else None


@dataclass(frozen=True, slots=True)
class SeededTask:
    """A task that another package makes from a seed."""

    task_id: str
    """Name of the task, unique within its environment."""
    seed: int
    """What the package is given."""


class SeededTasks(GeneratedTasks[SeededTask]):
    """The tasks of a split that another package makes from seeds.

    >>> SeededTasks("game:Mastermind-v0", "test")[3]
    SeededTask(task_id='game:Mastermind-v0/test/3', seed=20000003)

    Args:
        made: What makes them, such as the package's name for it: the first part of the task ids.
        split: A key of `FIRST_SEEDS`.
    """

    def __init__(self, made: str, split: str) -> None:
        super().__init__(split, made, split)
        self.made = made

    def get(self, index: int) -> SeededTask:
        return SeededTask(f"{self.made}/{self.split}/{index}", FIRST_SEEDS[self.split] + index)

    def content(self, index: int) -> Any:
        return [self.made, self[index].seed]


class SeededGame(ReplayedEnv):
    """A game that is opened at a seed (`open_live`), and played again where an episode goes on elsewhere.

    Args:
        env: The package's name of the game.

    Raises:
        ConfigError: There is no such split, or `data` is not "generated".
    """

    def __init__(self, *, env: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_generated(self.data)
        self.env = string("env", env)
        self.live_name = f"the game {env}"
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split

    def open_tasks(self) -> SeededTasks:
        return SeededTasks(self.env, self.split)


def made(package: str, env: str, registry: Iterable[str], games: Iterable[str], make: Callable[[], Any]) -> Any:
    """Make an environment of a package; a ConfigError says why it cannot be, and which `games` there are."""
    if env not in registry:
        raise ConfigError(f"{package} has no environment {env!r:.100}.{did_you_mean(env, sorted(games))}")
    try:
        return make()
    except LookupError as e:  # NLTK's, for a data set that is not there
        raise ConfigError(
            f"{env!r} needs data that is not on this machine; fetch NLTK's lists of words with: python -m "
            f"nltk.downloader words averaged_perceptron_tagger_eng ({str(e).strip('* ')[:80]})"
        ) from e
    except Exception as e:
        raise ConfigError(f"{env!r} cannot be made: {first_line(e)[:300]}") from e


class OwnDraws:
    """Random numbers of its own for a game that draws from Python's and NumPy's global generators.

    >>> draws = OwnDraws(3)
    >>> with draws.playing():
    ...     first = random.random()
    >>> with OwnDraws(3).playing():
    ...     again = random.random()
    >>> first == again
    True
    """

    _lock = threading.Lock()

    def __init__(self, seed: int) -> None:
        self._states: tuple[Any, Any] = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """Give the game its own random numbers, and let it print nothing; other threads print as before."""
        with self._lock, contextlib.redirect_stdout(_Muted(sys.stdout)) as muted:
            outer = random.getstate(), np.random.get_state()
            random.setstate(self._states[0])
            np.random.set_state(self._states[1])
            try:
                yield
            finally:
                muted.thread = 0
                self._states = random.getstate(), np.random.get_state()
                random.setstate(outer[0])
                np.random.set_state(outer[1])


class _Muted(io.TextIOBase):
    """Standard output without what one thread writes; it stays usable where somebody has kept it."""

    def __init__(self, out: Any) -> None:
        self._out, self.thread = out, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self._out.write(text)

    def flush(self) -> None:
        self._out.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


@functools.cache
def calls_runners(module: str) -> bool:
    """Return whether an imported module calls what runs a text as Python; also where there is no source to read."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError, SyntaxError):
        return True
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(getattr(call, "id", getattr(call, "attr", None)) in _RUN_TEXT for call in calls)


def require_generated(data: str) -> None:
    """Raise ConfigError unless `data` is "generated", where another package makes all tasks."""
    if data != "generated":
        raise ConfigError(f"data must be 'generated', got {data!r}: the package generates its tasks")


def require_trust(trust: bool, what: str) -> None:
    """Raise ConfigError unless `trust` is True, where a package may run the policy's text.

    Args:
        trust: The environment's argument.
        what: What may run it, such as "the scoring of 'countdown'".
    """
    if trust is not True:
        raise ConfigError(
            f"{what} may run the policy's text as Python; give trust=True if you run it in a machine or container "
            "that may be lost"
        )
