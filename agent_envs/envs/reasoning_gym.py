"""The generated problems of the package reasoning-gym, by the name of their data set.

    entry   {"question": "State the final answer to the following arithmetic problem: 4 + 3 =", "answer": "7", ...}
    score   dataset.score_answer(answer, entry), from 0 to 1

Questions, answers and scores are the package's own (https://github.com/open-thought/reasoning-gym, Apache 2.0).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from agent_envs.checks import choice, option_mapping
from agent_envs.envs.foreign import SPLITS, PosedTask, calls_runners, require_generated, require_trust
from agent_envs.errors import ConfigError, MissingExtraError, first_line
from agent_envs.problem_env import ProblemEnv
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome

__all__ = ["ReasoningGymEnv"]

# Modules that run their own text alone, read in version 0.1.25.
_READ = frozenset({"basic_arithmetic", "bitwise_arithmetic", "codeio", "number_sorting", "propositional_logic"})


class _Entries(IndexedTasks[PosedTask]):
    def __init__(self, dataset: str, config: Mapping[str, Any], split: str) -> None:
        super().__init__("generated", choice("split", split, SPLITS), cache=16)
        self.dataset, self.config = dataset, dict(config)
        self.entries = _opened(dataset, repr(sorted(self.config.items())), split, _Config(self.config))

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, index: int) -> PosedTask:
        entry = self.entries[index]
        answer = entry["answer"]
        task_id = f"{self.dataset}/{self.split}/{index}"
        return PosedTask(task_id, entry["question"], "" if answer is None else str(answer), entry)

    def content(self, index: int) -> Any:
        return [self[index].question, self[index].answer]

    def __reduce__(self) -> tuple[Any, ...]:
        return _Entries, (self.dataset, self.config, self.split)


class _Config(dict[str, Any]):
    """Arguments of a data set; the text beside them is what the cache looks at."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


@functools.cache
def _may_run_text(dataset: str) -> bool:
    """Whether a data set's module calls what runs text, by its source; also where there is no source to read."""
    if dataset in _READ:
        return False
    registered = _registered()
    if dataset == "composite" or dataset not in registered:
        return dataset == "composite"
    return calls_runners(registered[dataset][0].__module__)


def _registered() -> Mapping[str, Any]:
    """The package's data sets: class and configuration by name."""
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError as e:
        raise MissingExtraError(e.name or "reasoning_gym", extra="reasoning") from e
    return DATASETS


@functools.lru_cache(maxsize=16)
def _opened(dataset: str, text: str, split: str, config: _Config) -> Any:
    choice("dataset", dataset, sorted(_registered()))
    from reasoning_gym.factory import create_dataset

    seed, size = SPLITS[split]  # an entry is drawn with the seed of its data set plus its index
    try:
        return create_dataset(dataset, **{"size": size, **config, "seed": seed})
    except (AssertionError, TypeError, ValueError) as e:
        raise ConfigError(f"the data set {dataset!r} does not take config={dict(config)!r}: {first_line(e)}") from e


class ReasoningGymEnv(ProblemEnv):
    """Answer a generated problem of reasoning-gym, which has about a hundred data sets.

    ## Description
    A problem of arithmetic, algebra, logic, games, graphs, code and the like, generated and scored by the package
    reasoning-gym, which the extra `reasoning` installs.

    ## Action Space
    Any text. The answer is what stands in the last `<answer>...</answer>`, as the package reads it.

    ## Observation Space
    Text: the question at reset; after the answer, how it scored.

    ## Starting State
    A task drawn from the split, or `options={"index": i}`.

    ## Rewards
    The package's score of the answer, from 0 to 1. Some data sets pay a little for any answer, as released.

    ## Episode End
    Terminates with the first action.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the question), `invalid_action` (no answer in the text), `score`,
    `success` (the score is 1), `reward_components` (`answer`).

    ## Arguments
    `gym.make("AgentR1/ReasoningGym-v0", split="train", dataset="chain_sum", config={})`
    - `split`: "train" (100,000 tasks), "validation" or "test" (1,000 each).
    - `dataset`: the name of one of the package's data sets.
    - `config`: its arguments, such as `{"min_terms": 4}`; all but the seed. `size` sets the number of tasks.
    - `trust`: needed by the data sets whose scoring may run the policy's text as Python (`eval`, sympy's parser), and
      by `composite`, which can contain them.

    ## Data
    Generated by the package. Splits have seeds of their own; where a data set has few different problems, a problem
    can be in two of them.

    ## Version History
    - v0: first version
    """

    recorded_arguments = ("dataset",)  # what may run text needs `trust`
    instructions = "Solve the problem. Write the final answer alone between <answer> and </answer>."

    def __init__(
        self, *, dataset: str = "chain_sum", config: Mapping[str, Any] | None = None, trust: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        require_generated(self.data)
        if _may_run_text(dataset):
            require_trust(trust, f"the scoring of {dataset!r}")
        self.dataset, self.config, self.trust = dataset, option_mapping(config), trust
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split, name or argument

    def open_tasks(self) -> _Entries:
        return _Entries(self.dataset, self.config, self.split)

    def right_answer(self) -> str:
        return self.task.answer

    def check(self, task: Any, text: str) -> Outcome:
        from reasoning_gym.utils import extract_answer

        answer = extract_answer(text)
        score = 0.0
        if answer is not None:
            try:
                score = float(self.tasks.entries.score_answer(answer, task.source))  # type: ignore[attr-defined]
            except Exception:  # noqa: BLE001  scorers are the package's, and some raise at what they cannot read
                score = 0.0
        said = "There is no <answer>...</answer> in the text." if answer is None else f"The answer scores {score:g}."
        return Outcome(
            said,
            reward=score,
            invalid_action=answer is None,
            score=score,
            success=score >= 1.0,
            components={"answer": score},
        )

    def expert_action(self) -> str | None:
        """Return the package's own answer; None where it has none."""
        return f"<answer>{self.task.answer}</answer>" if self.task.answer else None
