"""The environments of the package skyrl-gym, over rows in SkyRL's format.

    row     {"prompt": [{"role": "user", "content": "..."}], "reward_spec": {"ground_truth": "72"}, ...}
    loop    env = skyrl_gym.make(name, env_config=config, extras=row); env.init(prompt); env.step(text)

Replies, rewards and ends are the package's own (https://github.com/NovaSky-AI/SkyRL, Apache 2.0).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_envs.checks import choice, option_mapping, string
from agent_envs.datasets.fields import as_list, as_object, text_field
from agent_envs.datasets.files import file_tasks
from agent_envs.datasets.generated_tasks import GeneratedTasks
from agent_envs.datasets.gsm8k.generated.problems import GeneratedGSM8K
from agent_envs.envs.foreign import require_trust
from agent_envs.envs.replayed import ReplayedEnv, Reply
from agent_envs.errors import ConfigError, DataError, check_release, first_line
from agent_envs.tasks import IndexedTasks

# How the right answer is written, for the environments that only read texts, and so need no trust.
_ANSWERS = {"aime": "Answer: {}", "gsm8k": "#### {}", "gsm8k_multi_turn": "#### {}"}


@dataclass(frozen=True, slots=True)
class _Row:
    task_id: str
    prompt: tuple[Mapping[str, str], ...]
    extras: Mapping[str, Any]

    @property
    def answer(self) -> str:
        specs = (self.extras.get("reward_spec") or {}, self.extras.get("reward_model") or {})
        return next((str(spec["ground_truth"]) for spec in specs if "ground_truth" in spec), "")


def _parse_row(row: Any, where: str, task_id: str) -> _Row:
    fields = as_object(row, "an object with 'prompt'", where)
    messages = [as_object(each, "a message", where) for each in as_list(fields.get("prompt"), "prompt", where)]
    prompt = tuple({key: text_field(each, key, where) for key in ("role", "content")} for each in messages)
    if not prompt:
        raise DataError(f"{where}: expected messages under 'prompt', got none")
    return _Row(task_id, prompt, {key: value for key, value in fields.items() if key != "prompt"})


class _Generated(GeneratedTasks[_Row]):
    """This package's generated problems as rows in SkyRL's format."""

    def __init__(self, split: str, turns: int) -> None:
        super().__init__(split, split, turns)
        self.problems, self.turns = GeneratedGSM8K.shared(split), turns

    def get(self, index: int) -> _Row:
        problem = self.problems[index]
        spec = {"method": "rule", "ground_truth": problem.answer}
        extras = {"reward_spec": spec, "reward_model": spec, "max_turns": self.turns}
        return _Row(f"skyrl-gym/{self.split}/{index}", ({"role": "user", "content": problem.question},), extras)

    def content(self, index: int) -> Any:
        return [self[index].prompt, self[index].answer]


class _Episode:
    """An environment of the package in progress."""

    def __init__(self, env: str, config: Mapping[str, Any], row: _Row) -> None:
        import skyrl_gym

        try:
            self._env = skyrl_gym.make(env, env_config=types.SimpleNamespace(**config), extras=dict(row.extras))
            messages, _ = self._env.init([dict(message) for message in row.prompt])
        except Exception as e:
            raise DataError(f"{env!r} does not take the row {row.task_id}: {first_line(e)[:300]}") from e
        self.first = Reply(_text(messages))

    def act(self, action: str) -> Reply:
        result = self._env.step(action)
        said, reward = _text(result["observations"]), float(result["reward"])
        return Reply(said, reward, bool(result["done"]), invalid=not action.strip())

    def close(self) -> None:
        self._env.close()


def _text(messages: list[Mapping[str, str]]) -> str:
    return "\n\n".join(message["content"] for message in messages)


class SkyRLGymEnv(ReplayedEnv):
    """Play an environment of skyrl-gym over generated problems, or over your rows in SkyRL's format.

    ## Description
    `gsm8k`, `gsm8k_multi_turn` and `aime` judge answers to problems of mathematics; with `trust=True` also those that
    search, ask databases or run programs. The extra `suites` installs the package.

    ## Action Space
    Any text; `gsm8k` reads the first number after `####`, `aime` what follows `Answer:`.

    ## Observation Space
    Text: the prompt's messages at reset, then those that the environment adds; "" where it adds none.

    ## Starting State
    A row drawn from the split, or `options={"index": i}`.

    ## Rewards
    The package's own, in every step: 1 for the right answer; `aime` pays -1 for a wrong one, `gsm8k_multi_turn` 0.2
    divided by its number of turns for a wrong one in the right format.

    ## Episode End
    Terminates when the package says so. Truncated after 50 steps.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the prompt), `invalid_action` (the text is blank, or the package
    fails at it, and nothing has happened), `score` (the reward), `success` (the last reward is at least 1),
    `reward_components` (`skyrl`).

    ## Arguments
    `gym.make("AgentR1/SkyRLGym-v0", env="gsm8k", split="train", data="generated")`
    - `env`: an id of the package.
    - `data`: "generated", or the path of rows in SkyRL's format (.jsonl, .json, .parquet), a file or a folder.
    - `config`: the fields of its `env_config`.
    - `turns`: `max_turns` of generated rows.
    - `trust`: needed by all but the three above: they may run the policy's text or send it elsewhere.

    ## Data
    Generated: the problems of `AgentR1/GSM8K-v0`, 100,000 train, 1,000 validation and 1,000 test. Rows of your own.
    """

    component = "skyrl"
    recorded_arguments = ("env", "turns")  # what may run text needs `trust`

    def __init__(
        self,
        *,
        env: str = "gsm8k",
        config: Mapping[str, Any] | None = None,
        turns: int = 5,
        trust: bool = False,
        **kwargs: Any,
    ) -> None:
        check_release("skyrl-gym", "suites")
        super().__init__(**kwargs)
        import skyrl_gym

        self.env = choice("env", string("env", env), sorted(skyrl_gym.registry))
        self.live_name = f"the environment {env}"
        self.config, self.turns, self.trust = option_mapping(config), turns, trust
        if env not in _ANSWERS:
            require_trust(trust, f"the environment {env!r}")
            if self.data == "generated":
                raise ConfigError(f"{env!r} has no generated rows; give data= the path of rows in SkyRL's format")
        written = _ANSWERS.get(env, "").format("ANSWER")
        self.instructions = f"Solve the problem. End with the answer in this form: {written}" if written else ""
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split or path

    def open_tasks(self) -> IndexedTasks[_Row]:
        if self.data == "generated":
            return _Generated(self.split, self.turns)
        suffixes = (".jsonl", ".json", ".parquet")
        return file_tasks(self.data, self.split, _parse_row, task="skyrl-gym", suffixes=suffixes)

    def start_of(self, task: _Row) -> int:
        return self._index

    def open_live(self, start: int) -> _Episode:
        return _Episode(self.env, self.config, self.tasks[start])

    def anchor(self) -> str:
        return str(self.state.first.said)

    def right_answer(self) -> str:
        return str(self.task.answer)

    def expert_action(self) -> str | None:
        """Return the right answer as the environment reads it; None where it is not one text."""
        form = _ANSWERS.get(self.env)
        return form.format(self.task.answer) if form and self.task.answer else None
