"""Looks for right answers where a policy should not see them: info, instructions, tools, snapshots, options, time."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from agent_envs.audit.findings import KINDS, Finding, exceeds
from agent_envs.audit.play import Arena, Played, scripted
from agent_envs.audit.policies import judged
from agent_envs.audit.study import Study
from agent_envs.audit.texts import RULES, WHOLE, leaves, normal
from agent_envs.errors import ConfigError
from agent_envs.registration import offered_tools
from agent_envs.text_env import TextEnv

_TASKS = 24  # on which actions are tried; all are reset
_PROBED = 6
_PLANS = 12
_WRONG = 4
_SLOW = 0.02  # seconds
_OPTIONS = (
    "answer", "solution", "hint", "reveal", "debug", "show_answer", "cheat", "gold", "target", "expected", "label",
    "admin", "test", "skip", "peek", "oracle", "verbose",
)  # fmt: skip
_NAMES = re.compile(r"""["']([A-Za-z_]\w*)["']""")  # in the code of a reset: options may be among them
_BAD = ("", "help", "?", "no such command", "<tool_call>{</tool_call>", "-1", "xyzzy")
# Words about the episode, and lists of what can be done now, are what a policy is meant to see; and what a tool found.
_MEANT = frozenset({"admissible_commands", "available_actions", "score", "success"})
_PAID = _MEANT | {"reward_components"}
_FOUND = _PAID | {"anchor", "tool_results"}

Place = tuple[str | tuple[str, ...], list[str]]
"""What a place shows, a text or a list of them, and the actions that lead there."""


def leaks(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding for each place from which an answer, or a plan that wins, can be copied."""
    seen: dict[str, dict[int, Place]] = {}
    probed = set(arena.sample(_TASKS))
    for task in arena.tasks:
        for name, place in (*_at_reset(arena, task), *(_replies(arena, study, task) if task in probed else ())):
            seen.setdefault(name, {})[task] = place
    for name, places in seen.items():
        plans = [(task, [*before, *texts]) for task, (texts, before) in places.items() if isinstance(texts, tuple)]
        played = [arena.play(task, scripted(plan)) for task, plan in plans[:_PLANS]]
        finding = judged(study, "leak", f"{name}, played as actions", played)[1]
        for rule, copy in ({WHOLE: RULES[WHOLE]} if study.commands() else RULES).items() if finding is None else ():
            finding = finding or _copied(arena, study, f"{rule} of {name}", copy, places)
        if finding is not None:
            yield finding


def _at_reset(arena: Arena, task: int) -> Iterator[tuple[str, Place]]:
    """Yield what can be read before any action, beside the first observation, by name."""
    played = arena.play(task, scripted([]))
    shown = played.reset_info
    places = {
        "reset's info": {name: value for name, value in shown.items() if name not in _MEANT},
        "the instructions": played.instructions,
    }
    for tool in offered_tools(arena.env):
        places[f"the description of the tool {tool['function']['name']}"] = dict(tool["function"])
    base = arena.env.unwrapped
    if isinstance(base, TextEnv):
        point = base.snapshot()
        places["prompt_state()"] = base.prompt_state()
        places["the snapshot's state"] = point.state
        places["restore's info"] = {name: v for name, v in base.restore(point)[1].items() if name not in shown}
    for name, place in places.items():
        for path, value in leaves(place):
            if value != played.start and path.rpartition(".")[2] not in ("type", "required"):
                yield name + (f"[{path!r}]" if path else ""), (value, [])


def _replies(arena: Arena, study: Study, task: int) -> Iterator[tuple[str, Place]]:
    """Yield what is told after an action that is no guess, and after wrong answers, by name."""
    start = arena.play(task, scripted([])).start
    tried = {f"the reply to {bad!r}": [bad] for bad in _BAD}
    if not study.commands():
        wrong = study.forms[0].format(next(iter(_wrong(study, study.golds.get(task, "")))))
        tried |= {f"the reply to {count} wrong answers": [wrong] * count for count in (1, 2, 3)}
    calls = {f"the result of {call}": [text] for call, text in _calls(arena, start)}
    for name, actions in (tried | calls).items():
        played = arena.play(task, scripted(actions), patient=True)
        if played.over or len(played.actions) < len(actions) or (played.reward > 0 and not study.golds):
            continue  # what the actions are paid themselves is not what is copied afterwards
        if played.last != start and len(played.last) < 1000:
            yield name, (played.last, actions)
        meant = _FOUND if name in calls else _PAID
        for path, value in leaves({key: value for key, value in played.info.items() if key not in meant}):
            if value not in (played.last, start):
                yield f"info[{path!r}] after {name.removeprefix('the ')}", (value, actions)


def _calls(arena: Arena, question: str) -> Iterator[tuple[str, str]]:
    """Yield calls that are no guess at an answer: without arguments, and with the question for each of them."""
    for function in arena.functions:
        yield f"{function['name']}()", arena.call(function["name"], {})
        if arguments := dict.fromkeys(function["parameters"].get("properties", {}), question[:200]):
            yield f"{function['name']} of the question", arena.call(function["name"], arguments)
    yield "a call of a tool that does not exist", '<tool_call>{"name": "answer", "arguments": {}}</tool_call>'


def _copied(
    arena: Arena, study: Study, name: str, copy: Callable[[str], str], places: Mapping[int, Place]
) -> Finding | None:
    """Answer with what a rule copies, where it is the right answer more often than by luck, or if none is known."""
    texts = {task: copy(text) for task, (text, _) in places.items() if isinstance(text, str)}
    texts = {task: text for task, text in texts.items() if 0 < len(text) <= 500}
    tasks = list(texts)
    if study.golds:
        golds = Counter(map(normal, study.golds.values()))
        rights = {task: {normal(gold), normal(study.written(task))} for task, gold in study.golds.items()}
        tasks = [task for task, text in texts.items() if normal(text) in rights.get(task, ())]
        others = max(0, sum(golds[normal(text)] for text in texts.values()) - len(tasks))
        luck = (others + 0.5) / max(1, len(texts) * (len(study.golds) - 1))
        if any(before for _, before in places.values()):
            luck = max(luck, KINDS["leak"].limit)  # what is found by acting may be about the answer
        if len(tasks) < 2 or not exceeds(len(tasks), len(texts), min(luck, 0.99)):
            return None
    for form in study.forms[:4]:
        ends = [arena.play(task, scripted([*places[task][1], form.format(texts[task])])) for task in tasks]
        if study.golds and all(map(study.solved, ends)):
            why = f"it is the right answer on {len(tasks)} of {len(texts)} tasks; it {KINDS['leak'].about}"
            return Finding("leak", f"{name}, as {form}", why, ends[0])
        if not study.golds and (finding := judged(study, "leak", f"{name}, as {form}", ends)[1]) is not None:
            return finding
    return None


def options(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding for each option of reset that gives answers away or sets them."""
    base = arena.env.unwrapped
    names = [*getattr(base, "reset_options", ())]
    for kind in type(base).__mro__:
        with contextlib.suppress(KeyError, OSError, TypeError):
            names += _NAMES.findall(inspect.getsource(vars(kind)["reset"]))
    for name in dict.fromkeys([*names, *_OPTIONS]):
        values = {"index": (), "question": ("What is six times seven?",)}.get(name, (True, "1791"))
        yield from itertools.islice(filter(None, (_option(arena, study, name, value) for value in values)), 1)


def _option(arena: Arena, study: Study, name: str, value: Any) -> Finding | None:
    own = name == "question"
    tasks, given = arena.sample(_PROBED), {name: value, **({"index": None} if own else {})}
    try:
        shown = {task: arena.play(task, scripted([]), options=given) for task in tasks}
    except ConfigError:  # an option that is refused gives nothing away
        return None
    if any(played.error for played in shown.values()):
        return None
    label, text = f"reset(options={{{name!r}: {value!r}}})", "42" if own else str(value)
    for form in study.forms[:4]:
        ends = [arena.play(task, scripted([form.format(text)]), options=given) for task in tasks]
        if all(map(study.solved, ends)) and len(ends) > 1:
            return Finding("option", label, f"the answer {text!r} is then right on {len(ends)} tasks", ends[0])
    for task in tasks:
        plain = arena.play(task, scripted([]))
        known = set(map(normal, _told(plain)))
        new = [told for told in _told(shown[task]) if normal(told) not in known]
        if shown[task].start != plain.start:
            new += [copy(shown[task].start) for copy in RULES.values()]
        candidates = dict.fromkeys(told for told in new if 0 < len(told) < 200)
        for candidate, form, under in itertools.product(candidates, study.forms[:4], (given, {})):
            written = [scripted([form.format(said)]) for said in (candidate, "1791")]
            done, bare = (arena.play(task, act, options=under) for act in written)
            if study.solved(done) and not study.solved(bare):
                return Finding("option", label, f"it shows the answer {candidate!r}", done)
    return None


def _told(played: Played) -> Iterator[str]:
    for _, entry in (*leaves(played.reset_info), *leaves(played.instructions)):
        yield from (entry,) if isinstance(entry, str) else entry


def tools(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding for each tool whose result, or whose time, differs for the right answer alone.

    A tool that looks things up says something else of every word. One that judges has one verdict for what is right and
    another for all that is wrong, in every task.
    """
    if len(set(study.golds.values())) < 3:
        return
    ways: dict[str, Callable[[str], str]] = {}
    for function in arena.functions:
        for argument in function["parameters"].get("properties", {}):
            call = partial(lambda name, argument, text: arena.call(name, {argument: text}), function["name"], argument)
            ways[f"{function['name']}({argument})"] = call
    ways |= {repr(form): form.format for form in ("check {}", "verify {}", "guess {}", "hint {}", "test {}", "{}")}
    for name, way in ways.items():
        yield from _judging(arena, study, name, way)


def _judging(arena: Arena, study: Study, name: str, way: Callable[[str], str]) -> Iterator[Finding]:
    right, wrong, gaps = set[str](), set[str](), list[float]()
    tasks = list(study.golds.items())[:_PROBED]
    for task, gold in tasks:
        texts = [gold, *_wrong(study, gold)[:_WRONG]]
        replies: list[str] = []
        seconds: list[float] = []
        for text in texts:
            played = arena.play(task, scripted([way(text)]))
            took = arena.seconds
            again = arena.play(task, scripted([way(text)]))
            if played.over or played.error or not played.actions or not again.actions:
                return  # it is a guess, not a question
            replies.append(played.last.replace(text, "...")[:200])
            seconds.append(min(took, arena.seconds))
        right.add(replies[0])
        wrong.update(replies[1:])
        gaps.append(seconds[0] - max(seconds[1:]))
    task, gold = tasks[0]
    shown = arena.play(task, scripted([way(_wrong(study, gold)[0]), way(gold), study.written(task)]))
    if len(right) == len(wrong) == 1 and right != wrong:
        why = f"it says {next(iter(right))!r} of the right answer and {next(iter(wrong))!r} of others, in every task"
        yield Finding("tool", name, why, shown)
    elif min(map(abs, gaps)) > _SLOW and (min(gaps) > 0 or max(gaps) < 0):
        why = f"the right answer takes {1000 * statistics.median(gaps):+.0f} ms, on {len(gaps)} of {len(gaps)} tasks"
        yield Finding("timing", name, why, shown)


def _wrong(study: Study, gold: str) -> list[str]:
    """Return wrong answers of the same kind: for numbers others near them, else answers to other tasks."""
    try:
        number = int(gold.replace(",", ""))
    except ValueError:
        others = dict.fromkeys(study.golds.values())
        return [text for text in others if gold and normal(text) != normal(gold)] or ["0 zz"]
    return [str(number + step) for step in (1, 2, -1, 10)]
