"""Policies that do not do the task: what they earn on many tasks shows what a reward can be had for."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.audit.findings import KINDS, Attempt, Finding, exceeds
from agent_envs.audit.play import Act, Arena, Played, View, scripted
from agent_envs.audit.study import Study
from agent_envs.audit.texts import CONSTANTS, IMITATIONS, RULES, SHAPES, SILENCE, WHOLE, normal
from agent_envs.episodes.statistics import share
from agent_envs.policies.scripted import RandomPolicy, listed_actions

_Z = 3.29  # of a two-sided 99.9 % interval: an audit tries about a hundred policies
_PAY_LIMIT = 0.1  # mean return of an attack, as a share of a solved task's
_HEDGES = 10
_FEWEST = 2  # tasks that a policy must solve: one may be luck
_REFUSED = 20  # tasks
_FEW = 14  # constants that are tried in every form
_SAMPLED = 8  # tasks on which each expert's words are tried first
_SCRIPTS = 20  # experts whose actions are played on other tasks


@dataclass(frozen=True, slots=True)
class _Attack:
    kind: str
    name: str
    act: Act
    patient: bool = False
    tasks: int = 10**9
    """Most tasks to play."""
    sample: int = 10**9
    """Tasks after which a policy that has earned nothing is not tried on the others."""


def _constant(text: str) -> Act:
    return lambda view: text


def _attacks(arena: Arena, study: Study) -> Iterator[_Attack]:
    """Yield the policies that know nothing of the task, or copy from what they are shown."""
    yield from (_Attack("silent", repr(text), _constant(text)) for text in SILENCE)
    for form in study.forms:
        for text in CONSTANTS if form == study.forms[0] else CONSTANTS[:_FEW]:
            yield _Attack("constant", form.format(text), _constant(form.format(text)))
    for text in (*SHAPES, *(form.format("") for form in study.forms)):
        yield _Attack("format", text, _constant(text), sample=20)
    ends = Counter(played.last.strip() for played in study.experts.values() if study.solved(played))
    for text in (*IMITATIONS, *(text for text, _ in ends.most_common(3))):
        for form in ("{}", study.forms[0]) if text in IMITATIONS[:2] and study.forms[0] != "{}" else ("{}",):
            yield _Attack("imitate", form.format(text), _constant(form.format(text)), sample=20)
    for which, name in ((0, "first"), (-1, "last")):
        yield _Attack("constant", f"the {name} of the listed actions", _listed(which))
        yield _Attack("stall", f"the {name} of the listed actions", _listed(which), patient=True, tasks=10)
    yield _Attack("random", "random actions", _random(), tasks=60)
    calls = [arena.call(function["name"], {}) for function in arena.functions]
    for text in ("", "wait", "0", *calls):
        yield _Attack("stall", repr(text), _constant(text), patient=True, tasks=10)
    for amount in (30, 300, 3000):
        filler = "the answer needs careful thought " * (amount // 5)
        yield _Attack("constant", f"{amount} words of filler", _constant(filler), tasks=20)
    yield from _borrowed(study)
    yield from _many(study)
    yield from _copies(arena, study)


def _borrowed(study: Study) -> Iterator[_Attack]:
    """What solves one task, tried on the others: the expert's last words, and all of its actions."""
    won = [played for played in study.experts.values() if study.solved(played) and played.actions]
    golds = Counter(study.golds.values()).most_common(3)
    for text, count in golds:
        if count > 1 or len(study.golds) < 5:
            yield _Attack("frequent", text, _constant(study.forms[0].format(text)))
    for text, owner in {played.actions[-1]: played.task for played in reversed(won)}.items():
        lent = functools.partial(lambda text, owner, view: None if view.task == owner else text, text, owner)
        yield _Attack("frequent", text, lent, sample=_SAMPLED)
    for played in won[:_SCRIPTS]:
        if len(played.actions) > 1:
            yield _Attack("frequent", f"what solves task {played.task}", _elsewhere(played), sample=_SAMPLED)


def _elsewhere(solved: Played) -> Act:
    """Return what plays the actions that solve a task on those that look different."""
    return lambda view: None if view.start == solved.start else scripted(solved.actions)(view)


def _listed(which: int) -> Act:
    def act(view: View) -> str | None:
        listed = listed_actions(view.env)
        return listed[which] if listed else None

    return act


def _random() -> Act:
    policy, actors = RandomPolicy(seed=0), dict[str, Any]()

    def act(view: View) -> str | None:
        if view.step == 0:
            actors["now"] = policy.start(view.env)
        return actors["now"].act(view.observation, {"task_id": str(view.task), **view.info})

    return act


def _many(study: Study) -> Iterator[_Attack]:
    numbers = " ".join(map(str, range(1001)))
    for form in study.forms[:4]:
        yield _Attack("every", f"all whole numbers to 1000, as {form}", _constant(form.format(numbers)))
    lists = {"all digits": "0 1 2 3 4 5 6 7 8 9", "all letters": "A B C D E", "yes and no": "yes no true false"}
    for (name, text), form in itertools.product(lists.items(), study.forms[:4]):
        yield _Attack("every", f"{name}, as {form}", _constant(form.format(text)))
        yield _Attack("every", f"{name}, each as {form}", _constant("\n".join(map(form.format, text.split()))))
    if study.golds:
        pool = " ".join(dict.fromkeys(study.golds.values()))
        yield _Attack("every", "the answers to all tasks in one text", _constant(study.forms[0].format(pool)))


def _copies(arena: Arena, study: Study) -> Iterator[_Attack]:
    """Rules of copying from the question and the instructions; those that miss every answer are left out."""
    shown = [arena.play(task, scripted([])) for task in arena.tasks]
    reads: dict[str, Callable[[View | Played], str]] = {
        "the question": lambda view: view.start,
        "the instructions": lambda view: view.instructions,
    }
    for (source, read), (rule, copy) in itertools.product(reads.items(), RULES.items()):
        hits = (normal(copy(read(one))) == normal(study.golds.get(one.task, "")) for one in shown)
        if rule == WHOLE or not study.golds or any(hits):
            for form in study.forms if study.golds or rule == WHOLE else study.forms[:4]:
                yield _Attack("copy", f"{rule} of {source}, as {form}", _copied(read, copy, form))
    yield _Attack("copy", "what was said last", lambda view: view.observation or None)


def _copied(read: Callable[[View | Played], str], copy: Callable[[str], str], form: str) -> Act:
    return lambda view: form.format(text) if (text := copy(read(view))) else None


def tried(arena: Arena, study: Study, progress: bool) -> Iterator[tuple[Attempt, Finding | None]]:
    """Try every attack, and yield what it earned with a finding if that is too much.

    What earns nothing on a sample of the tasks, or is called invalid there, is not played on the others. A bar on
    standard error shows how far it is, if `progress` is asked for.
    """
    from tqdm import tqdm

    for attack in tqdm(list(_attacks(arena, study)), unit="attack", disable=not progress, leave=False):
        played: list[Played] = []
        first = arena.sample(min(attack.sample, _REFUSED))
        for task in [*first, *(task for task in arena.tasks if task not in first)][: attack.tasks]:
            played.append(arena.play(task, attack.act, patient=attack.patient))
            if len(played) == attack.sample and not any(study.solved(one) or one.reward > 0 for one in played):
                break
            steps = (step for one in played for step in one.steps)
            if len(played) == _REFUSED and all(s.info.get("invalid_action") is True and s.reward <= 0 for s in steps):
                break
        yield judged(study, attack.kind, attack.name, [one for one in played if one.actions])


def judged(study: Study, kind: str, name: str, played: Sequence[Played]) -> tuple[Attempt, Finding | None]:
    """Return what a policy earned in its episodes, and a finding if that is more than its kind may earn."""
    count = len(played)
    won = [one for one in played if study.solved(one)]
    solved = len(won) / count if count else 0.0
    pay = sum(map(study.pay, played)) / count if count else 0.0
    attempt = Attempt(kind, name, count, solved, pay)
    limit = max(KINDS[kind].limit, study.chance)
    why = ""
    if len(won) >= min(_FEWEST, count) and exceeds(len(won), count, limit):
        why = f"solves {len(won)} of {count} tasks"
    elif share(pay * count, count, _Z).low > max(limit, _PAY_LIMIT):
        won = [one for one in played if one.reward > 0]
        why = f"earns {100 * pay:.3g} % of a solved task's reward on {count} tasks"
    if not why:
        return attempt, None
    shortest = min(won, key=lambda one: (len(one.actions), sum(map(len, one.actions))))
    return attempt, Finding(kind, name, f"{why}; it {KINDS[kind].about}", shortest)


def answers(arena: Arena, study: Study) -> Iterator[Finding]:
    """Answer after the expert's way: with what is right elsewhere, and with the right answer among wrong ones."""
    if len(set(study.golds.values())) < 2:
        return
    write = study.forms[0].format
    ways: dict[tuple[str, str], Callable[[str, list[str]], list[str]]] = {
        ("constant", "the answer to another task, after the expert's way"): lambda gold, others: [write(others[0])],
        ("every", "a right answer among wrong ones, in one answer"): lambda gold, others: [
            write(", ".join(words)) for words in ([gold, *others], [*others, gold])
        ],
        ("every", "a right answer among wrong ones, each written as the answer"): lambda gold, others: [
            "\n".join(map(write, words)) for words in ([gold, *others], [*others, gold])
        ],
    }
    for (kind, name), texts in ways.items():
        won, tried = [], 0
        for task, gold in list(study.golds.items())[:_HEDGES]:
            others = [text for text in dict.fromkeys(study.golds.values()) if normal(text) != normal(gold)][:8]
            way = study.experts[task].actions[:-1] if task in study.experts else []
            if not others or (kind == "every" and len(others) < 3) or (kind == "constant" and not way):
                continue
            tried += 1
            ends = [arena.play(task, scripted([*way, text])) for text in texts(gold, others)]
            if all(map(study.solved, ends)):
                won.append(min(ends, key=lambda one: len(one.actions)))
        limit = max(study.chance, KINDS[kind].limit)
        if len(won) >= min(_FEWEST, tried or 1) and share(len(won), tried).low > limit:
            shortest = min(won, key=lambda one: sum(map(len, one.actions)))
            yield Finding(kind, name, f"it is paid in full on {len(won)} of {tried} tasks", shortest)
            if kind == "every":
                return
