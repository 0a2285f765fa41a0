"""The verifiable problems of RLVE, as the package rlve-gym has them: 400 generators, each with a difficulty.

    problem   env.generator(seed, parameter); env.prompt_generator()
    verdict   env.verifier(text)   {"reward": -1 to 1, "accuracy": 0 or 1, "format_score": 0 or 1}

Problems and verdicts are the package's own (https://github.com/Zhiyuan-Zeng/RLVE, MIT).
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agent_envs.checks import choice, integer, shown
from agent_envs.envs.foreign import SPLITS, OwnDraws, PosedTask, calls_runners, require_generated, require_trust
from agent_envs.errors import ConfigError, DataError, first_line, needs_extra
from agent_envs.problem_env import ProblemEnv
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome

__all__ = ["RLVEEnv"]

_LONGEST = 4096  # characters of an answer, since verifiers take time that grows with it
_HASHES = "PYTHONHASHSEED"  # which the package sets for every process that is started later


class _Problems(IndexedTasks[PosedTask]):
    def __init__(self, problem: str, level: int, split: str) -> None:
        super().__init__("generated", choice("split", split, SPLITS), cache=64)
        self.problem, self.level = problem, level

    def __len__(self) -> int:
        return SPLITS[self.split][1]

    def get(self, index: int) -> PosedTask:
        seed = SPLITS[self.split][0] + index
        parameters = _parameters(self.problem, self.level)
        with _apart(seed):
            env = _registered()[0][self.problem]()
            if not env.generator(seed, dict(parameters[index % len(parameters)])):
                raise DataError(f"rlve-gym makes no {self.problem} of level {self.level} from the seed {seed}")
            question = env.prompt_generator()
        answer = env.parameter.get("reference_answer")
        written = "" if answer is None else str(answer)
        return PosedTask(f"{self.problem}/{self.level}/{self.split}/{index}", question, written, env.get_config())

    def content(self, index: int) -> Any:
        return [self[index].question, self[index].answer]

    def __reduce__(self) -> tuple[Any, ...]:
        return _Problems, (self.problem, self.level, self.split)


@functools.cache
def _registered() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The package's generators, and what sets their difficulty, by name."""
    with needs_extra("suites"):
        from Gym.environments import identifier2environment
        from Gym.parameter_controllers import identifier2controller
    return identifier2environment, identifier2controller


@functools.lru_cache(maxsize=64)
def _parameters(problem: str, level: int) -> list[dict[str, Any]]:
    """Return the package's parameters of a problem after as many steps of difficulty."""
    controller = _registered()[1][problem]()
    for _ in range(level):
        controller.update()
    return list(controller.get_parameter_list())


@contextmanager
def _apart(seed: int) -> Iterator[None]:
    """Leave everybody's random numbers and environment as they are, which the package seeds and sets."""
    import torch

    before = os.environ.get(_HASHES)
    with OwnDraws(seed).playing(), torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_HASHES, None)
            else:
                os.environ[_HASHES] = before


class RLVEEnv(ProblemEnv):
    """Answer a generated problem of RLVE, which has 400 generators with levels of difficulty.

    ## Description
    A problem of algorithms, number theory, graphs, puzzles and the like, generated and verified by the package
    rlve-gym, which the extra `suites` installs.

    ## Action Space
    Any text. The answer is what stands in the last `<answer>...</answer>`, as the package reads it.

    ## Observation Space
    Text: the problem at reset; after the answer, what it earned.

    ## Starting State
    A task drawn from the split, or `options={"index": i}`.

    ## Rewards
    The package's own, from -1 (no answer that can be read) to 1; many problems pay a part for a part.

    ## Episode End
    Terminates with the first action.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the problem), `invalid_action` (the package finds no answer),
    `score` (the reward), `success` (the package's `accuracy`), `reward_components` (`answer`).

    ## Arguments
    `gym.make("AgentR1/RLVE-v0", split="train", problem="AdditionTable", level=0)`
    - `problem`: the name of one of the package's generators.
    - `level`: how often its difficulty is raised, from 0; what that changes is each generator's own.
    - `split`: "train" (100,000 seeds), "validation" or "test" (1,000 each).
    - `trust`: needed by the generators whose verifier may run the policy's text as Python (`eval`, sympy's parser).

    ## Data
    Generated by the package. Splits share no seed; at low levels a problem can be in two of them.

    ## Version History
    - v0: first version
    """

    recorded_arguments = ("problem", "level")  # what may run text needs `trust`
    instructions = "Solve the problem. Write the final answer alone between <answer> and </answer>."

    def __init__(self, *, problem: str = "AdditionTable", level: int = 0, trust: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_generated(self.data)
        known, _ = _registered()
        if problem not in known:
            close = difflib.get_close_matches(str(problem), known, n=3)
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise ConfigError(f"problem must be one of rlve-gym's {len(known)}, got {shown(problem)}.{hint}")
        if calls_runners(known[problem].__module__):
            require_trust(trust, f"the verifier of {problem!r}")
        self.problem, self.level, self.trust = problem, integer("level", level, minimum=0, maximum=1000), trust
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split
        try:
            _parameters(problem, self.level)
        except (AssertionError, TypeError, ValueError) as e:
            raise ConfigError(f"{problem!r} has no level {level}: {first_line(e)}") from e

    def open_tasks(self) -> _Problems:
        return _Problems(self.problem, self.level, self.split)

    def right_answer(self) -> str:
        return self.task.answer

    def check(self, task: Any, text: str) -> Outcome:
        if len(text) > _LONGEST:
            said = f"The text has {len(text)} characters; at most {_LONGEST} are read."
            return Outcome(said, reward=-1.0, invalid_action=True, score=-1.0, components={"answer": -1.0})
        with _apart(0):
            env = _registered()[0][self.problem]()
            env.set_config(task.source)
            try:
                verdict = env.verifier(text)
            except AssertionError:  # the package's check that a score is from -1 to 1
                verdict = {"reward": -1.0, "accuracy": 0, "format_score": 0}
        reward = float(verdict["reward"])
        return Outcome(
            f"The answer earns {reward:g}." if verdict["format_score"] else "There is no answer that can be read.",
            reward=reward,
            invalid_action=not verdict["format_score"],
            score=reward,
            success=bool(verdict["accuracy"]),
            components={"answer": reward},
        )

    def expert_action(self) -> str | None:
        """Return the package's own answer; None where it has none."""
        return f"<answer>{self.task.answer}</answer>" if self.task.answer else None
