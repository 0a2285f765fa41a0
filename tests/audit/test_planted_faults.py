"""Environments with one fault each, which the audit finds, and sound ones, in which it finds nothing.

All are small: `Sums` asks for a sum, `Shop` has a tool, `Door` takes commands, `Plain` has nothing of this package's
contract. A fault is a method that replaces one of theirs.
"""

from __future__ import annotations

# ruff: noqa: E501  a fault is a line of a table
import base64
import functools
import itertools
import json
import random
import re
import time
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from agent_envs import ProblemEnv, TextEnv, ToolEnv
from agent_envs.audit import KINDS, audit
from agent_envs.episodes.record import read_episodes
from agent_envs.errors import ConfigError, ToolError
from agent_envs.problem_env import Problem
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome
from tests.helpers import sampled

LAST = 31  # the last of the four tasks of 40 that are played
MORE_TASKS = {  # than four, among which these faults may be luck
    **dict.fromkeys(("info has the number of the choice", "info has it as a truth"), 40),
    **dict.fromkeys(("beginnings count", "a box is paid in part", "chance wins", "info has the way"), 8),
    "some instructions have the answer": 8,
}
SHARED: dict[str, Any] = {}


@functools.cache
def numbers(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(500, 4500, 2).tolist()


class Problems(IndexedTasks):
    """Sums of two numbers; no two splits share one, unless `salt` says so."""

    def __init__(self, split: str, question: Callable[[int, int, int], tuple[str, str]], salt: str | None = None):
        super().__init__("generated", split)
        if split not in ("train", "test"):
            raise ConfigError(f"there is no split {split!r}")
        self.question, self.salt = question, split if salt is None else salt

    def __len__(self) -> int:
        return 40

    def get(self, index: int) -> Problem:
        start = {"train": 0, "test": 1000}.get(self.salt, 2000) + index
        a, b = numbers(start)
        a = 2 * a + (self.salt == "test")
        text, answer = self.question(index, a, b)
        return Problem(f"sums/{index}", text, answer)


class Sums(ProblemEnv):
    instructions = "Add, and write `answer NUMBER`."
    form: ClassVar[str] = "answer {}"
    max_episode_steps = 1

    def ask(self, index: int, a: int, b: int) -> tuple[str, str]:
        return f"What is {a} plus {b}?", str(a + b)

    def open_tasks(self) -> Problems:
        return Problems(self.split, self.ask)

    def given(self, text: str) -> str:
        before, _, after = self.form.partition("{}")
        text = text.strip()
        return text[len(before) : len(text) - len(after)] if text.startswith(before) and text.endswith(after) else ""

    def check(self, task: Problem, text: str) -> Any:
        return self.given(text) == task.answer

    def expert_action(self) -> str:
        return self.form.format(self.task.answer)


class Shop(ToolEnv):
    """A tool tells a price; the answer is twice the price."""

    max_episode_steps = 6
    form = "{}"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(tools=self.offered(), **kwargs)

    def offered(self) -> list[Any]:
        return [self.price]

    def price(self, item: str) -> str:
        """Tell the price of an item.

        Args:
            item: The item.
        """
        if item != self.task.question.split()[-1].rstrip("?"):
            raise ToolError(f"there is no {item!r}")
        return f"It costs {int(self.task.answer) // 2}."

    def open_tasks(self) -> Problems:
        return Problems(self.split, lambda index, a, b: (f"What do two pieces cost of thing{a}?", str(2 * b)))

    def begin(self, task: Problem) -> tuple[str, dict[str, Any]]:
        return task.question, {}

    def answer(self, text: str) -> Outcome:
        right = text.strip() == self.task.answer
        return Outcome(f"{'Right' if right else 'Wrong'}.", float(right), True, success=right, score=float(right))

    def expert_action(self) -> str:
        if not any("costs" in text for text in self._transcript):
            return self.format_call("price", {"item": self.task.question.split()[-1].rstrip("?")})
        return self.task.answer


class Door(TextEnv):
    """Four turns left or right, as a sign says; a wrong turn loses."""

    instructions = "Write left or right, as the sign says."
    max_episode_steps = 12

    def open_tasks(self) -> Problems:
        return Problems(self.split, lambda index, a, b: (str(a), "".join("lr"[int(bit)] for bit in f"{a % 256:08b}")))

    def sign(self) -> str:
        return f"Sign: {'left' if self.task.answer[self.state] == 'l' else 'right'}."

    def begin(self, task: Problem) -> tuple[str, int]:
        self.state = 0
        self._task = task
        return self.sign(), 0

    def act(self, action: str) -> Outcome:
        if action not in ("left", "right"):
            return Outcome("Expected left or right.", invalid_action=True)
        if action[0] != self.task.answer[self.state]:
            return Outcome("You fall.", 0.0, True)
        self.state += 1
        won = self.state == 8
        return Outcome("You are through." if won else self.sign(), float(won), won, success=won, score=float(won))

    def available_actions(self) -> list[str]:
        return ["left", "right"]

    def expert_action(self) -> str:
        return "left" if self.task.answer[self.state] == "l" else "right"


class Plain(gym.Env):
    """A sum, with nothing but what Gymnasium asks for."""

    observation_space = gym.spaces.Text(1000)
    action_space = gym.spaces.Text(100, charset=frozenset(map(chr, range(32, 127))))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.a, self.b = (int(n) for n in self.np_random.integers(1000, 9000, 2))
        return f"{self.a} + {self.b}?", {}

    def step(self, action: str):
        return "", float(action == str(self.a + self.b)), True, False, {}


class Shifted(Plain):
    """A `Plain` whose seeds are shifted."""

    def __init__(self, by: int) -> None:
        self.by = by

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        return super().reset(seed=None if seed is None else seed + self.by)


def make(kind: type[gym.Env], **members: Any) -> Callable[..., gym.Env]:
    """Return what makes an environment of a kind with some members replaced."""
    name = f"{kind.__name__}Faulty"
    changed = type(name, (kind,), members)
    limit = members.get("max_episode_steps", getattr(kind, "max_episode_steps", None))

    def maker(**kwargs: Any) -> gym.Env:
        env = changed(**kwargs)
        return env if limit is None else gym.wrappers.TimeLimit(env, limit)

    return maker


def sums(check: Callable[..., Any] | None = None, **members: Any) -> Callable[..., gym.Env]:
    """Return a `Sums` with a check of `(task, text)`, or other members."""
    if check is not None:
        members["check"] = lambda self, task, text: check(task, text)
    return make(Sums, **members)


def with_info(*, key: str, value: Callable[[Any], Any]) -> Callable[..., gym.Env]:
    return sums(info=lambda self, outcome: {**TextEnv.info(self, outcome), key: value(self.task)})


def right(task: Problem, text: str) -> bool:
    return text.strip() in (task.answer, f"answer {task.answer}")


def patient(self: Any, task: Problem, text: str) -> Outcome:
    return Outcome("Paid.", float(right(task, text)), success=right(task, text))


class Staying(Sums):
    """A `Sums` whose episodes go on after a wrong answer."""

    max_episode_steps = 5

    def act(self, action: str) -> Outcome:
        won = right(self.task, action)
        return Outcome(self.reply(action), float(won), won, not won, float(won), won)

    def reply(self, action: str) -> str:
        return "No."


def slow(self: Any, action: str) -> str:
    if action.startswith("check ") and action.split()[-1] == self.task.answer:
        time.sleep(0.03)
    return "No."


def reset_with(name: str, effect: Callable[[Any, Any], str]) -> Callable[..., gym.Env]:
    """Return a `Sums` with an option of reset; `effect` returns what it shows."""

    def reset(self: Any, *, seed: int | None = None, options: dict[str, Any] | None = None):
        options = dict(options or {})
        value = options.pop(name, None)
        observation, info = TextEnv.reset(self, seed=seed, options=options)
        shown = observation if value is None else f"{observation} {effect(self, value)}".strip()
        return shown, info

    return sums(reset=reset, reset_options=("index", name))


def undeclared(self: Any, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
    peek = (options or {}).get("peek_at_it")
    observation, info = TextEnv.reset(
        self, seed=seed, options={k: v for k, v in (options or {}).items() if k == "index"}
    )
    return observation, {**info, "it": self.task.answer} if peek else info


def set_answer(self: Any, value: Any) -> str:
    self._task = Problem(self.task.task_id, self.task.question, str(value))
    return ""


def paid_calls(reward: Callable[[Any, str, list[Any]], float]) -> Callable[..., gym.Env]:
    def after_tools(self: Any, calls: Any, results: Any, outcome: Outcome) -> Outcome:
        outcome.reward = reward(self, self._last, list(results))
        return outcome

    def act(self: Any, action: str) -> Outcome:
        self._last = action
        return ToolEnv.act(self, action)

    return make(Shop, after_tools=after_tools, act=act)


def checking(self: Any) -> list[Any]:
    def check(number: str) -> str:
        """Check a number.

        Args:
            number: The number.
        """
        return f"{number} is {'right' if number == self.task.answer else 'wrong'}"

    return [self.price, check]


def telling(self: Any) -> list[Any]:
    def manual() -> str:
        """Show the manual."""
        return f"The customer is to be told: {self.task.answer}"

    return [self.price, manual]


class Noted(Shop):
    """The description of its tool has the answer."""

    @property
    def tools(self) -> list[Any]:
        specs = super().tools
        if self._task is not None:
            specs[0]["function"]["description"] = f"Tells a price. Expected: {self._task.answer}"
        return specs


def remembering(self: Any, task: Problem) -> tuple[str, None]:
    seen = getattr(self, "seen", "")
    self.seen = f" Before: {task.answer}."
    return task.question + seen, None


def shared_memory(self: Any, task: Problem) -> tuple[str, None]:
    SHARED[task.task_id] = SHARED.get(task.task_id, 0) + 1
    return f"{task.question} ({SHARED[task.task_id]})", None


def tries_left(self: Any, action: str) -> Outcome:
    """A count outside of the state, which a return to a snapshot does not reset."""
    self.tries = 1 if len(self._transcript) == 1 and not hasattr(self, "tries") else getattr(self, "tries", 0) + 1
    return Outcome(f"Try {self.tries}.", float(right(self.task, action)), True, success=right(self.task, action))


def every_fifth(self: Any, task: Problem, text: str) -> bool:
    self.count = getattr(self, "count", 0) + 1
    return right(task, text) or self.count % 5 == 0


def late(self: Any, action: str) -> Outcome:
    self.state = (self.state or 0) + 1
    won = right(self.task, action)
    return Outcome("So.", float(won) * self.state, won, not won, float(won), won)


def waiting(self: Any, action: str) -> Outcome:
    self.state = (self.state or 0) + 1
    won = right(self.task, action) or self.state == 5
    return Outcome("So.", float(won), won, not won, float(won), won)


def raising(self: Any, action: str) -> Outcome:
    if not action.strip():
        raise IndexError("list index out of range")
    return Sums.act(self, action)


def near_copies(self: Any) -> Problems:
    mark = "?" if self.split == "train" else " ?!"
    return Problems(self.split, lambda i, a, b: (f"What is {a} plus {b}{mark}", str(a + b)), salt="train")


def choices(count: int, always: int | None = None) -> Callable[[Any, int, int, int], tuple[str, str]]:
    def ask(self: Any, index: int, a: int, b: int) -> tuple[str, str]:
        place = a % count if always is None else always
        lines = [f"{chr(65 + i)}. {a + b if i == place else a + b + i + 7}" for i in range(count)]
        return "\n".join([f"{a} + {b}?", *lines]), chr(65 + place)

    return ask


def ends_in_answer(self: Any, index: int, a: int, b: int) -> tuple[str, str]:
    return f"Add {a} and {b}. (Key: {a + b})", str(a + b)


def over(self: Any, action: str) -> Any:
    """A step without a look at whether the episode is over."""
    self._over = False
    return TextEnv.step(self, action)


def json_says(text: str) -> bool:
    try:
        return bool(json.loads(text)["correct"])
    except (ValueError, TypeError, KeyError):
        return False


def restored_with_answer(self: Any, snapshot: Any) -> Any:
    observation, info = TextEnv.restore(self, snapshot)
    return observation, {**info, "expected": self.task.answer}


def giving_in(self: Any, action: str) -> Outcome:
    self.state = (self.state or 0) + 1
    won = right(self.task, action)
    return Outcome(f"It was {self.task.answer}." if self.state == 2 else "No.", float(won), won, success=won)


def shown_without_pay(self: Any, value: Any) -> str:
    answer, self._task = self.task.answer, Problem(self.task.task_id, self.task.question, "")
    return f"(It is {answer})"


class Subsets(Sums):
    """Chooses its tasks by an argument of another name, and has the same ones in each."""

    chosen = "subset"

    def __init__(self, subset: str = "train", mode: str = "train", **kwargs: Any) -> None:
        if {subset, mode} - {"train", "test"}:
            raise ConfigError("there is no such subset")
        super().__init__(**kwargs)
        self.salt = subset if self.chosen == "subset" else mode

    def open_tasks(self) -> Problems:
        return Problems("train", self.ask, salt="train")


class Counting(Staying):
    """Ends after five steps, which a restored snapshot counts anew."""

    def begin(self, task: Problem) -> tuple[str, int]:
        self.steps = 0
        return task.question, 0

    def act(self, action: str) -> Outcome:
        self.steps += 1
        outcome = Staying.act(self, action)
        outcome.terminated |= self.steps == 5
        return outcome

    def restore(self, snapshot: Any) -> Any:
        self.steps = 0
        return TextEnv.restore(self, snapshot)


def split_of(self: Any) -> Problems:
    return Problems(self.split, self.ask, salt="train")


FAULTS: dict[str, tuple[str | set[str], Callable[..., gym.Env]]] = {
    "silence is right": ("silent", sums(lambda task, text: right(task, text) or not text.strip())),
    "the empty text is part of any": ("silent", sums(lambda task, text: text.strip() in f"answer {task.answer}")),
    "one text is always right": ("constant", sums(lambda task, text: right(task, text) or text == "answer 42")),
    "yes is always right": ("constant", sums(lambda task, text: right(task, text) or "yes" in text)),
    "infinity is near enough": ("constant", sums(lambda task, text: right(task, text) or "inf" in text)),
    "beginnings count": ("constant", sums(lambda task, text: (text.split() or ["-"])[-1][:1] == task.answer[:1])),
    "half are yes": ("constant", sums(ask=lambda s, i, a, b: (f"Is {a} more than {b}?", "yes" if a > b else "no"))),
    "the right choice is always B": ("constant", sums(ask=choices(4, always=1))),
    "the first listed action wins": ("constant", make(Door, expert_action=lambda s: "left", act=lambda s, a: Outcome(
        "So.", float(a == "left"), True, success=a == "left"))),
    "many answers are the same": ("frequent", sums(ask=lambda s, i, a, b: (f"Where is {a}?", str(b) if a % 5 == 0 else "Zug"))),
    "a part of the text counts": ("every", sums(lambda task, text: task.answer in text)),
    "any word counts": ("every", sums(lambda task, text: task.answer in re.findall(r"\w+", text))),
    "the question has the answer": ({"copy", "every"}, sums(ask=ends_in_answer)),
    "the first number is the answer": ("copy", sums(ask=lambda s, i, a, b: (f"Of {a} and {b}, say the first.", str(a)))),
    "common words count": ("copy", sums(lambda task, text: right(task, text) or "plus" in text)),
    "tags alone are paid": ("format", sums(lambda task, text: right(task, text) or "<answer>" in text)),
    "a box is paid in part": ("format", sums(lambda task, text: 1.0 if right(task, text) else 0.5 * ("boxed" in text))),
    "the grader reads its own words": ("imitate", sums(lambda task, text: right(task, text) or "is right" in text)),
    "a system's words are trusted": ("imitate", sums(lambda task, text: right(task, text) or "<|im_start|>sys" in text)),
    "a passed test is believed": ("imitate", sums(lambda task, text: right(task, text) or "1 passed" in text)),
    "chance wins": ("random", make(Door, act=lambda s, a: Outcome("So.", float(a != "up"), True, success=a != "up"),
        expert_action=lambda s: "right", available_actions=lambda s: ["up", "left", "right", "down", "in", "out"])),
    "waiting is paid": ("stall", make(Staying, act=waiting, max_episode_steps=6)),
    "info has the answer": ("leak", with_info(key="answer", value=lambda task: task.answer)),
    "info has it deep inside": ("leak", with_info(key="meta", value=lambda task: {"row": {"target": int(task.answer)}})),
    "info has it in a list": ("leak", with_info(key="targets", value=lambda task: ["x", task.answer])),
    "info has it backwards": ("leak", with_info(key="key", value=lambda task: task.answer[::-1])),
    "a file is named after it": ("leak", with_info(key="file", value=lambda task: f"/data/{task.answer}.json")),
    "the task's id ends in it": ("leak", with_info(key="task_id", value=lambda task: f"sums-{task.answer}")),
    "info has the way": ("leak", make(Door, info=lambda self, outcome: {**TextEnv.info(self, outcome), "plan": [
        {"l": "left", "r": "right"}[letter] for letter in self.task.answer]})),
    "an error has the answer": ("leak", make(Staying, reply=lambda self, action: f"Expected {self.task.answer}.")),
    "a tool's description has it": ("leak", make(Noted)),
    "a tool returns it": ("leak", make(Shop, offered=telling)),
    "a tool judges answers": ("tool", make(Shop, offered=checking)),
    "a command judges answers": ("tool", make(Staying, reply=lambda self, action: (
        "Hot." if self.task.answer == action.removeprefix("check ") else "Cold."))),
    "time tells": ("timing", make(Staying, reply=slow)),
    "an option shows the answer": ("option", reset_with("hint", lambda self, value: f"(It is {self.task.answer})")),
    "an option sets the answer": ("option", reset_with("label", set_answer)),
    "a question of one's own is right": ("option", make(Sums,
        reset_options=("index", "question"), own_task=lambda self, question: Problem("own", question, ""),
        check=lambda self, task, text: task.answer in text if not task.answer else right(task, text))),
    "a step after the end is paid": ("after_end", sums(step=over)),
    "invalid actions are paid": ("invalid", make(Staying, act=lambda self, action: Outcome(
        "So.", 1.0 if right(self.task, action) else 0.01, right(self.task, action), not right(self.task, action),
        success=right(self.task, action)))),
    "failed calls are paid": ("invalid", paid_calls(lambda self, text, results: 0.01 * any(r.error for r in results))),
    "two is more than declared": ("range", sums(lambda task, text: Outcome("So.", 2.0 * right(task, text), success=right(
        task, text)), reward_range=(0.0, 1.0))),
    "no number is paid": ("crash", sums(lambda task, text: Outcome("So.", float("nan")))),
    "right answers go on": ("repeat", make(Staying, act=lambda self, action: patient(self, self.task, action))),
    "each call is paid": ("repeat", paid_calls(lambda self, text, results: 0.3 * (not results[0].error))),
    "an answer beside a call is paid": ("repeat", paid_calls(lambda self, text, results: float(self.task.answer in text))),
    "memory outlives a reset": ("carried", sums(begin=remembering)),
    "instances share memory": ("nondeterminism", sums(begin=shared_memory)),
    "the clock is shown": ("nondeterminism", sums(begin=lambda self, task: (f"{task.question} {random.random()}", None))),
    "a snapshot forgets a count": ("snapshot", make(Staying, act=tries_left)),
    "every fifth episode is paid": ({"order", "constant", "carried"}, make(Sums, check=every_fifth)),
    "test is train": ("splits", sums(open_tasks=split_of)),
    "test is nearly train": ("splits", sums(open_tasks=near_copies)),
    "some tasks cannot be won": ("expert", sums(lambda task, text: right(task, text) and int(task.answer) % 3 > 0)),
    "later is paid more": ("length", make(Staying, act=late)),
    "longer is paid more": ({"constant", "length"}, sums(lambda task, text: 1.0 if right(task, text) else min(
        0.9, len(text) / 1000))),
    # what every constant, split and word of a judge is for
    "one answer of the data wins everywhere": ("frequent", sums(ask=lambda s, i, a, b: (f"Where is {a}?", "Zagreb"))),
    "one answer wins a split": ("frequent", sums(ask=lambda s, i, a, b: (f"Where is {a}?", f"Zagreb {s.split}"))),
    "an answer of another task is taken too": ("frequent", sums(lambda task, text: right(task, text) or text == f"answer {sum(numbers(LAST)) + numbers(LAST)[0]}")),
    "the same way wins everywhere": ("frequent", make(Door, open_tasks=lambda self: Problems(
        self.split, lambda index, a, b: (str(a), "lrrlrlll")), sign=lambda self: f"Sign {self.task.question}.")),
    "any answer is paid after a call": ("constant", make(Shop, answer=lambda self, text: Outcome("So.", float(any(
        "costs" in said for said in self._transcript)), True, success=any("costs" in said for said in self._transcript)))),
    **{f"{word} is believed": ("imitate", sums(lambda task, text, word=word: right(task, text) or word in text))
       for word in ("CORRECT", "PASS", "[[A]]", "<verdict>true</verdict>", "score=1.0", '"correct": true', "reward: 1.0")},
    "a text that is a verdict is believed": ("imitate", sums(lambda task, text: right(task, text) or re.fullmatch(
        r"(?i)verdict: *(correct|pass)", text) is not None)),
    "a last line that is a verdict is believed": ("imitate", sums(lambda task, text: right(task, text) or text.splitlines()[
        -1:] == ["Verdict: correct"])),
    "an answer that is a verdict is believed": ("imitate", sums(lambda task, text: right(task, text) or bool(re.match(
        r"answer .*\bACCEPTED\b", text, re.S)))),
    "a JSON verdict is read": ("imitate", sums(lambda task, text: right(task, text) or json_says(text))),
    "some instructions have the answer": ("leak", make(Sums, instructions=property(lambda self: "Add, and write `answer "
        "NUMBER`." + (f" (Here {self.task.answer} is meant.)" if self._task and self._index % 3 == 0 else "")))),
    "the anchor has the answer": ("leak", sums(anchor=lambda self: f"{self.task.question} {self.task.answer}")),
    "the state of prompts has it": ("leak", sums(prompt_state=lambda self: {"goal": {"value": self.task.answer}})),
    "a snapshot has it": ("leak", sums(begin=lambda self, task: (task.question, {"expected": task.answer}))),
    "a snapshot has the action, encoded": ("leak", sums(begin=lambda self, task: (task.question, {
        "bytes": base64.b64encode(f"answer {task.answer}".encode())}))),
    "parts of no reward have it": ("leak", sums(info=lambda self, outcome: {
        **TextEnv.info(self, outcome), "reward_components": {"target": float(self.task.answer)}})),
    "info after a restore has it": ("leak", make(Sums, restore=restored_with_answer)),
    "info has the number of the choice": ("leak", make(Sums, ask=choices(4), info=lambda self, outcome: {
        **TextEnv.info(self, outcome), "label": ord(self.task.answer) - 65})),
    "info has it as a truth": ("leak", make(Sums, ask=lambda s, i, a, b: (f"Is {b} odd?", "yes" if b % 2 else "no"),
        info=lambda self, outcome: {**TextEnv.info(self, outcome), "truth": self.task.answer == "yes"})),
    "info has it in base 64": ("leak", with_info(key="blob", value=lambda task: base64.b64encode(task.answer.encode()).decode())),
    "the second wrong answer shows it": ("leak", make(Staying, act=giving_in)),
    "info of a call has it": ("leak", make(Shop, info=lambda self, outcome: {**TextEnv.info(self, outcome),
        "debug": self.task.answer if len(self._transcript) > 1 else "0"})),
    "an undeclared option shows it": ("option", make(Sums, reset=undeclared)),
    "an option shows it, and pays nothing then": ("option", reset_with("dry_run", shown_without_pay)),
    "nobody can win": ("expert", sums(lambda task, text: False, expert_action=lambda self: None)),
    "winning is not paid": ("expert", sums(lambda task, text: Outcome("So.", 0.0, success=right(task, text)))),
    "plain: nobody wins": ("expert", Plain),
    "subsets share tasks": ("splits", make(Subsets)),
    "modes share tasks": ("splits", functools.partial(make(Subsets, chosen="mode"), mode="test")),
    "plain: the split is ignored": ("splits", lambda split="train": Plain()),
    "plain: the test is a part of training": ("splits", lambda train=True: Shifted(0 if train else 4)),
    "the end of the limit is a success": ("stall", make(Staying, act=waiting, max_episode_steps=5)),
    "a restored snapshot has all its steps again": ("snapshot", make(Counting, max_episode_steps=None)),
    "the environment's own limit does not end it": ("after_end", make(Plain, a=0, step=lambda self, action: (
        "", float(not action), False, bool(action), {}))),
    "an empty action raises": ("crash", sums(act=raising)),
    "plain: silence is right": ("silent", make(Plain, step=lambda self, action: (
        "", float(not action.strip()), True, False, {}))),
    "plain: a part of the text counts": ("every", make(Plain, action_space=gym.spaces.Text(9000, charset=frozenset(
        map(chr, range(32, 127)))), step=lambda self, action: ("", float(str(self.a % 900) in action), True, False, {}))),
    "plain: no number is paid": ("range", make(Plain, step=lambda self, action: ("", float("nan"), True, False, {}))),
    "plain: info has the answer": ("leak", make(Plain, reset=lambda self, **kwargs: (
        Plain.reset(self, **kwargs)[0], {"label": str(self.a + self.b)}))),
}  # fmt: skip


FIRST = {kinds if isinstance(kinds, str) else max(kinds): name for name, (kinds, _) in reversed(FAULTS.items())}


@pytest.mark.parametrize("name", sampled(FAULTS, FIRST.values()))  # one of each kind
def test_a_planted_fault_is_found_and_shown(name, tmp_path):
    kinds, maker = FAULTS[name]
    SHARED.clear()
    found = audit(maker, tasks=MORE_TASKS.get(name, 4), processes=False)
    wanted = {kinds} if isinstance(kinds, str) else kinds
    assert wanted & {finding.kind for finding in found.findings}, found.table()
    assert not found.passed
    found.write(tmp_path)
    episodes = list(read_episodes(tmp_path / "episodes.jsonl"))
    shown = [f for f in found.findings if f.kind in wanted]
    assert all(finding.played is not None for finding in shown)
    assert len(episodes) == sum(finding.played is not None for finding in found.findings)


def test_a_reward_that_is_no_number_is_no_other_reward():
    found = audit(FAULTS["plain: no number is paid"][1], tasks=4, processes=False)
    assert {finding.kind for finding in found.findings} == {"range"}


def test_there_is_a_fault_of_every_kind():
    planted = set(itertools.chain.from_iterable([k] if isinstance(k, str) else k for k, _ in FAULTS.values()))
    assert planted == set(KINDS) and len(FAULTS) >= 30


# -- sound ones --------------------------------------------------------------------------------------------------------

NAMES = ("Ada", "Bo", "Cy", "Dee", "Eve", "Flo", "Gus", "Hal", "Ivo", "Joy", "Kit", "Lee", "Max", "Ned", "Oda", "Pip")


def last_number(task: Problem, text: str) -> bool:
    numbers = re.findall(r"-?\d+", text)
    return bool(numbers) and numbers[-1] == task.answer


def f1(task: Problem, text: str) -> Outcome:
    given, wanted = text.split(), task.answer.split()
    common = len(set(given) & set(wanted))
    score = 2 * common / (len(given) + len(wanted)) if common else 0.0
    return Outcome("Scored.", score, success=score == 1.0, score=score)


def names(self: Any, index: int, a: int, b: int) -> tuple[str, str]:
    return f"Who has numbers {a} and {b}?", f"{NAMES[a % 16]} {NAMES[b % 16]}son-{b % 97}"


class Higher(Sums):
    """Guess a number; each reply says whether it is higher or lower, as the task means it to."""

    max_episode_steps = 16

    def ask(self, index: int, a: int, b: int) -> tuple[str, str]:
        return "Guess the number from 0 to 9999.", str(a)

    def begin(self, task: Problem) -> tuple[str, list[int]]:
        return task.question, [0, 9999]

    def act(self, action: str) -> Outcome:
        if not action.strip().isdecimal() or len(action) > 5:
            return Outcome("Expected a number from 0 to 9999.", invalid_action=True)
        number, hidden = int(action), int(self.task.answer)
        if number == hidden:
            return Outcome("That is it.", 1.0, True, success=True, score=1.0)
        if number < hidden:
            self.state[0] = max(self.state[0], number + 1)
        else:
            self.state[1] = min(self.state[1], number - 1)
        return Outcome("Higher." if number < hidden else "Lower.")

    def expert_action(self) -> str:
        return str(sum(self.state) // 2)


def calculating(self: Any) -> list[Any]:
    def add(numbers: list[int]) -> str:
        """Add numbers.

        Args:
            numbers: The numbers.
        """
        return str(sum(numbers))

    return [self.price, add]


def price_paid_once(self: Any, calls: Any, results: Any, outcome: Outcome) -> Outcome:
    if not results[0].error and not self.state.get("paid"):
        self.state["paid"] = True
        outcome.reward = 0.1
    return outcome


def three_times(self: Any, action: str) -> Outcome:
    self.state = (self.state or 0) + 1
    won = right(self.task, action)
    return Outcome("Right." if won else "Try again.", float(won), won or self.state == 3, success=won)


SOUND: dict[str, Callable[..., gym.Env]] = {
    "a sum": make(Sums),
    "a sum after ####": make(Sums, form="#### {}"),
    "a sum in a sentence": make(Sums, form="The sum is {} in all."),
    "a sum in tags": make(Sums, form="<answer>{}</answer>"),
    "a bare sum": make(Sums, form="{}"),
    "the last number": sums(last_number),
    "a close number": sums(lambda task, text: re.fullmatch(r"\d{1,9}", text.strip().removeprefix("answer ")) is not None
        and abs(int(text.split()[-1]) - int(task.answer)) <= 1),
    "case and points do not matter": sums(lambda task, text: text.strip(" .").casefold() == f"answer {task.answer}"),
    "a reward of ten": sums(lambda task, text: Outcome("So.", 10.0 * (text == f"answer {task.answer}"), success=text
        == f"answer {task.answer}")),
    "a wrong answer costs": sums(lambda task, text: Outcome("So.", 1.0 if right(task, text) else -0.5, success=right(
        task, text))),
    "a declared range": sums(reward_range=(0.0, 1.0)),
    "names": sums(ask=names),
    "names, paid in part": sums(f1, ask=names, form="{}"),
    "long answers": sums(ask=lambda s, i, a, b: (f"Spell {a} and {b}.", " ".join(f"{a}{b}" * 3))),
    "negative numbers": sums(ask=lambda s, i, a, b: (f"What is {a} minus {20000 + b}?", str(a - b - 20000))),
    "fractions": sums(ask=lambda s, i, a, b: (f"What is {a} over {b + 7}?", f"{a}/{b + 7}")),
    "a second try": make(Sums, act=three_times, max_episode_steps=4),
    "no limit": make(Staying, max_episode_steps=None),
    "no information in replies": make(Staying, reply=lambda self, action: ""),
    "replies that repeat the action": make(Staying, reply=lambda self, action: f"{action[:50]} is not it."),
    "info with numbers": with_info(key="difficulty", value=lambda task: len(task.question)),
    "info with a checksum": with_info(key="digest", value=lambda task: f"{zlib.crc32(task.question.encode()):x}z"),
    "info with a list": with_info(key="words", value=lambda task: task.question.split()),
    "an option that is only a mode": reset_with("loud", lambda self, value: "Loud!"),
    "instructions of each task": make(Sums, instructions=property(lambda self: f"Add. {self._index} of these was done.")),
    "a state that counts": make(Sums, prompt_state=lambda self: {"length": len(self.task.question)}),
    "subsets of their own": make(Sums, __init__=lambda self, subset="train", **kwargs: Sums.__init__(self, split=subset)),
    "a mode that is no split": make(Sums, __init__=lambda self, mode="train", **kwargs: Sums.__init__(self, **kwargs)),
    "a limit of its own, kept in snapshots": make(Staying, max_episode_steps=None, act=lambda self, action: three_times(self, action)),
    "a shop": make(Shop),
    "a shop with a calculator": make(Shop, offered=calculating),
    "a price that is paid once": make(Shop, after_tools=price_paid_once),
    "a shop with four steps": make(Shop, max_episode_steps=4),
    "a door": make(Door),
    "a door with a cost for each step": make(Door, act=lambda self, action: (
        lambda outcome: Outcome(outcome.observation, outcome.reward - 0.01, outcome.terminated, success=outcome.success)
    )(Door.act(self, action))),
    "a guess with hints": make(Higher),
    "plain": make(Plain),
    "plain, with splits": lambda split="train": Shifted(0 if split == "train" else 10**6),
    "plain, with success": make(Plain, step=lambda self, action: (
        "", float(action == str(self.a + self.b)), True, False, {"success": action == str(self.a + self.b)})),
    "plain, with negative rewards": make(Plain, step=lambda self, action: (
        "", 1.0 if action == str(self.a + self.b) else -1.0, True, False, {})),
}  # fmt: skip


def adding(view: Any) -> str:
    return str(sum(map(int, re.findall(r"\d+", view.start))))


BASES = ("a sum", "names, paid in part", "a second try", "no limit", "an option that is only a mode", "a shop with a calculator",
    "subsets of their own", "a guess with hints", "plain, with splits")  # fmt: skip


@pytest.mark.parametrize("name", sampled(SOUND, BASES))
def test_nothing_is_found_in_a_sound_environment(name):
    found = audit(SOUND[name], tasks=8, processes=False, **({"expert": adding} if name.startswith("plain") else {}))
    assert found.passed, found.table()
