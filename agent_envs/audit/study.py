"""What is known of an environment before it is attacked: how its expert plays, and how answers are written."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field

from agent_envs.audit.play import Act, Arena, Played, View, scripted
from agent_envs.audit.texts import FORMS
from agent_envs.text_env import TextEnv

_BROKEN_END = re.compile(r"[\w.-]*$")  # the beginnings of answers may agree too
_BROKEN_START = re.compile(r"^[\w.]*")
_common_start = os.path.commonprefix  # of characters


@dataclass(slots=True)
class Study:
    """The expert's episodes, and the answers that they show."""

    experts: dict[int, Played] = field(default_factory=dict)
    """The expert's episode of each task that it has one for."""
    golds: dict[int, str] = field(default_factory=dict)
    """The right answer to each task that has one; attacks that stand for a policy do not read it."""
    forms: tuple[str, ...] = FORMS
    """How an answer is written, likeliest first, with "{}" for the answer."""
    full: float = 1.0
    """The return of a solved task, which rewards are measured by."""
    chance: float = 0.0
    """Share of the tasks that a guess may solve, since that is their nature."""

    @property
    def share(self) -> float | None:
        """Share of the tasks that the expert solves; None without an expert."""
        return sum(map(self.solved, self.experts.values())) / len(self.experts) if self.experts else None

    def solved(self, played: Played) -> bool:
        """Return whether an episode counts as solved: its info says so, or it was paid in full."""
        return played.reward >= 0.99 * self.full > 0 if played.told is None else played.told

    def pay(self, played: Played) -> float:
        """Return an episode's return as a share of a solved task's, from 0 to 1."""
        return min(1.0, max(0.0, played.reward / self.full)) if self.full > 0 else 0.0

    def written(self, task: int) -> str:
        """Return the right answer to a task as its expert writes it."""
        return self.forms[0].format(self.golds[task])

    def commands(self) -> bool:
        """Whether the environment is played with commands: its expert wins without an answer that is a text."""
        return bool(self.experts) and not self.golds


def expert_act(view: View) -> str | None:
    """Return the expert's next action, None where there is none."""
    return view.env.get_wrapper_attr("expert_action")() if view.env.has_wrapper_attr("expert_action") else None


def study(arena: Arena, expert: Act, chance: float) -> Study:
    """Play the expert, and find out how answers are written from its last actions."""
    known = Study(chance=chance)
    base = arena.env.unwrapped
    rights = {}
    for task in arena.tasks:
        played = arena.play(task, lambda view: None if view.info.get("success") is True else expert(view), patient=True)
        if played.actions or played.error:
            known.experts[task] = played
        if right := base.right_answer() if isinstance(base, TextEnv) else "":
            rights[task] = right
    if not any(played.actions for played in known.experts.values()):
        known.experts = _answered(arena, rights)  # there is none; what failed are resets
    won = [played for played in known.experts.values() if played.success or (played.told is None and played.reward)]
    if won:
        returns = sorted(played.reward for played in won)
        known.full = returns[len(returns) // 2] or 1.0
    words = {task: played.actions[-1] for task, played in known.experts.items() if played in won and played.actions}
    lines = {task: (text.strip().splitlines() or [""])[-1] for task, text in words.items()}
    if (form := _form(lines, rights)) is not None:
        before, after = form
        golds = {task: line[len(before) : len(line) - len(after)].strip() for task, line in lines.items()}
        known.golds = {task: gold for task, gold in golds.items() if gold}
        escaped = "{}".join(text.replace("{", "{{").replace("}", "}}") for text in form)
        known.forms = (escaped,) if escaped == "{}" else (escaped, "{}")
    else:
        known.golds = {} if known.experts else rights
        known.forms = ("{}",) if known.commands() else FORMS  # a command is written without a frame
    return known


def _answered(arena: Arena, rights: dict[int, str]) -> dict[int, Played]:
    """Return the episodes of the right answers, in the form that the environment pays; none if it pays for few."""
    for form in FORMS if rights else ():
        played = {task: arena.play(task, scripted([form.format(right)])) for task, right in rights.items()}
        if 2 * sum(one.success or one.reward > 0 for one in played.values()) > len(played):
            return played
    return {}


def _form(lines: dict[int, str], rights: dict[int, str]) -> tuple[str, str] | None:
    """Return what the experts' last lines have in common before and after the answers; None if these are no answers.

    >>> _form({0: "#### 31", 1: "#### 7"}, {})
    ('#### ', '')
    """
    told = Counter(
        (line.partition(rights[task])[0], line.partition(rights[task])[2])
        for task, line in lines.items()
        if task in rights and rights[task] in line
    )
    if told:
        form, count = told.most_common(1)[0]
        return form if 2 * count >= len(lines) else None
    texts = sorted(set(lines.values()))
    if len(texts) < 2:
        return None
    before = _BROKEN_END.sub("", _common_start(texts))
    after = _BROKEN_START.sub("", _common_start([text[len(before) :][::-1] for text in texts])[::-1])
    inner = [text[len(before) : len(text) - len(after)] for text in texts]
    # Where actions are commands, they differ in every word: an answer is what varies in one place of a fixed text.
    return (before, after) if before or after or all(len(text.split()) <= 3 for text in inner) else None
