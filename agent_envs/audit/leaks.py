"""Looks for right answers where a policy should not see them: info, instructions, tools, snapshots, options, time."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agent_envs.audit.findings import KINDS, Finding, exceeds
from agent_envs.audit.play import Act, Arena, Played, View, scripted
from agent_envs.audit.policies import judged
from agent_envs.audit.study import Study
from agent_envs.audit.texts import RULES, WHOLE, leaves, normal
from agent_envs.errors import ConfigError
from agent_envs.layers import layers, offered_tools
from agent_envs.rollout.panel import canonical
from agent_envs.text_env import TextEnv

__all__ = ["leaks", "options", "tools"]

_TASKS = 24  # on which actions are tried; all are reset
_PROBED = 6
_PLANS = 12
_WRONG = 4
_SLOW = 0.02  # seconds
_OPTIONS = (
    "answer", "solution", "hint", "reveal", "debug", "show_answer", "cheat", "gold", "target", "expected", "label",
    "admin", "test", "skip", "peek", "oracle", "verbose",
)  # fmt: skip
_OPTION = re.compile(r"""\boptions\b[^\n]{0,40}?[\[(]\s*["'](\w+)["']|["'](\w+)["'] (?:not )?in options""")  # in code
_BAD = ("", "help", "?", "no such command", "<tool_call>{</tool_call>", "-1", "xyzzy")
# Words about the episode, and lists of what can be done now, are what a policy is meant to see.
_MEANT = frozenset({"reward_components", "admissible_commands", "available_actions", "score", "success"})

Shown = tuple[str | tuple[str, ...], list[str]]
"""What a place shows of a task: a text or texts, and the actions that lead there."""


def leaks(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding for each place from which an answer, or a plan that wins, can be copied."""
    seen: dict[str, dict[int, Shown]] = {}
    probed = set(arena.sample(_TASKS))
    for task in arena.tasks:
        for name, value, before in (*_at_reset(arena, task), *(_replies(arena, study, task) if task in probed else ())):
            seen.setdefault(name, {})[task] = (value, before)
    for name, values in seen.items():
        finding = _plan(arena, study, name, values)
        rules = {WHOLE: RULES[WHOLE]} if study.commands() else RULES
        for rule, copy in rules.items() if finding is None else ():
            finding = finding or _copied(arena, study, f"{rule} of {name}", copy, values)
        if finding is not None:
            yield finding


def _at_reset(arena: Arena, task: int) -> Iterator[tuple[str, str | tuple[str, ...], list[str]]]:
    """Yield what can be read before any action, beside the first observation: the place's name and its text."""
    played = arena.play(task, scripted([]))
    places = {
        "reset's info": {name: value for name, value in played.start_info.items() if name not in _MEANT},
        "the instructions": played.instructions,
    }
    for tool in offered_tools(arena.env):
        places[f"the description of the tool {tool['function']['name']}"] = dict(tool["function"])
    base = arena.env.unwrapped
    if isinstance(base, TextEnv):
        point = base.snapshot()
        places["prompt_state()"] = base.prompt_state()
        places["the snapshot's state"] = canonical(point.state)
        again = base.restore(point)[1]
        places["restore's info"] = {name: value for name, value in again.items() if name not in played.start_info}
    for name, place in places.items():
        for path, value in leaves(place):
            if value != played.start and path.rpartition(".")[2] not in ("type", "required"):
                yield name + (f"[{path!r}]" if path else ""), value, []


def _replies(arena: Arena, study: Study, task: int) -> Iterator[tuple[str, str | tuple[str, ...], list[str]]]:
    """Yield what is told after an action that is no guess, and after wrong answers: place, text, actions."""
    start = arena.play(task, scripted([])).start
    gold = study.golds.get(task)
    wrong = study.forms[0].format("0 zz" if gold is None else (_wrong(study, gold) or ["0 zz"])[0])
    said = [(f"the reply to {bad!r}", [bad]) for bad in (*_BAD, *([] if study.commands() else [wrong]))]
    said += [(f"the reply to {count} wrong answers", [wrong] * count) for count in (2, 3) if not study.commands()]
    for name, actions in (*said, *((f"the result of {call}", [text]) for call, text in _calls(arena, start))):
        played = arena.play(task, scripted(actions), patient=True)
        if played.over or len(played.actions) < len(actions):
            continue
        if played.last != start and len(played.last) < 1000:
            yield name, played.last, actions
        for path, value in leaves({k: v for k, v in played.last_info.items() if k not in _MEANT}):
            if value not in (played.last, start):
                yield f"info[{path!r}] after {name.partition(' ')[2]}", value, actions


def _calls(arena: Arena, question: str) -> Iterator[tuple[str, str]]:
    """Yield calls that are no guess at an answer: without arguments, and with the question for each of them."""
    write = arena.writer()
    for tool in arena.tools:
        if write is None:
            break
        function = tool["function"]
        yield f"{function['name']}()", write(function["name"], {})
        arguments = dict.fromkeys(function["parameters"].get("properties", {}), question[:200])
        if arguments:
            yield f"{function['name']} of the question", write(function["name"], arguments)
    yield "a call of a tool that does not exist", '<tool_call>{"name": "answer", "arguments": {}}</tool_call>'


def _plan(arena: Arena, study: Study, name: str, values: dict[int, Shown]) -> Finding | None:
    """Play a list of texts as actions, or its ends as answers."""
    ways: dict[str, Callable[[tuple[str, ...]], list[str]]] = {"played as actions": list}
    for form in study.forms[:2]:
        ways[f"its first entry, as {form}"] = lambda value, form=form: [form.format(value[0])]  # type: ignore[misc]
        ways[f"its last entry, as {form}"] = lambda value, form=form: [form.format(value[-1])]  # type: ignore[misc]
    plans = [(task, value, before) for task, (value, before) in values.items() if isinstance(value, tuple)][:_PLANS]
    for how, way in ways.items() if plans else ():
        played = [arena.play(task, scripted([*before, *way(value)])) for task, value, before in plans]
        if (finding := judged(study, "leak", f"{name}, {how}", played)[1]) is not None:
            return finding
    return None


def _copied(
    arena: Arena, study: Study, name: str, copy: Callable[[str], str], values: dict[int, Shown]
) -> Finding | None:
    """Answer with what a rule copies, where it is the right answer more often than by luck, or if none is known."""
    texts = {task: copy(value) for task, (value, _) in values.items() if isinstance(value, str)}
    texts = {task: text for task, text in texts.items() if 0 < len(text) <= 500}
    tasks = list(texts)
    if study.golds:
        golds = Counter(map(normal, study.golds.values()))
        tasks = [task for task, text in texts.items() if normal(text) == normal(study.golds.get(task, "")) != ""]
        pairs = len(texts) * (len(study.golds) - 1)
        luck = (sum(golds[normal(text)] for text in texts.values()) - len(tasks) + 0.5) / max(1, pairs)
        if len(tasks) < 2 or not exceeds(len(tasks), len(texts), min(luck, 0.99)):
            return None
    for form in study.forms[:4]:
        ends = [arena.play(task, scripted([*values[task][1], form.format(texts[task])])) for task in tasks]
        if study.golds and all(map(study.solved, ends)):
            why = f"it is the right answer on {len(tasks)} of {len(texts)} tasks; it {KINDS['leak'].about}"
            return Finding("leak", f"{name}, as {form}", why, ends[0])
        if not study.golds and (finding := judged(study, "leak", f"{name}, as {form}", ends)[1]) is not None:
            return finding
    return None


def options(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding for each option of reset that gives answers away or sets them."""
    base = arena.env.unwrapped
    names = dict.fromkeys(name for name in getattr(base, "reset_options", ()) if name != "index")
    for kind in (type(layer) for layer in layers(base)):
        for reset in (vars(parent)["reset"] for parent in kind.__mro__ if "reset" in vars(parent)):
            with contextlib.suppress(OSError, TypeError):
                names |= dict.fromkeys(filter(None, itertools.chain(*_OPTION.findall(inspect.getsource(reset)))))
    for name in [*names, *_OPTIONS]:
        own = name == "question"
        for value in ("What is six times seven?",) if own else (True, "1791"):
            finding = None if name == "index" else _option(arena, study, name, value, own)
            if finding is not None:
                yield finding
                break


def _option(arena: Arena, study: Study, name: str, value: Any, own: bool) -> Finding | None:
    tasks = arena.sample(_PROBED)
    given = {name: value, **({"index": None} if own else {})}
    try:
        shown = {task: arena.play(task, scripted([]), options=given) for task in tasks}
    except ConfigError:  # an option that is refused gives nothing away
        return None
    if any(played.error for played in shown.values()):
        return None
    label = f"reset(options={{{name!r}: {value!r}}})"
    text = "42" if own else str(value)
    for form in study.forms[:4]:
        ends = [arena.play(task, scripted([form.format(text)]), options=given) for task in tasks]
        if all(map(study.solved, ends)) and len(ends) > 1:
            return Finding("option", label, f"the answer {text!r} is then right on {len(ends)} tasks", ends[0])
    for task in tasks:
        plain = arena.play(task, scripted([]))
        known = {normal(text) for text in _told(plain)}
        new = [text for text in _told(shown[task]) if normal(text) not in known]
        if shown[task].start != plain.start:
            new += [copy(shown[task].start) for copy in RULES.values()]
        for candidate in dict.fromkeys(text for text in new if 0 < len(text) < 200):
            for form, under in ((form, under) for form in study.forms[:4] for under in (given, {})):
                done, bare = (
                    arena.play(task, scripted([form.format(word)]), options=under) for word in (candidate, "1791")
                )
                if study.solved(done) and not study.solved(bare):
                    return Finding("option", label, f"it shows the answer {candidate!r}", done)
    return None


def _told(played: Played) -> Iterable[str]:
    for _, entry in (*leaves(played.start_info), *leaves(played.instructions)):
        yield from (entry,) if isinstance(entry, str) else entry


def tools(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding for each tool whose result, or whose time, differs for the right answer alone.

    A tool that looks things up says something else of every word. One that judges has one verdict for what is right and
    another for all that is wrong, in every task.
    """
    if len(set(study.golds.values())) < 3:
        return
    write = arena.writer()
    ways: list[tuple[str, Callable[[str], str]]] = []
    for tool in arena.tools:
        if write is None:
            break
        function = tool["function"]
        for argument in function["parameters"].get("properties", {}):
            call = functools.partial(_call, write, function["name"], argument)
            ways.append((f"{function['name']}({argument})", call))
    ways += [(repr(form), form.format) for form in ("check {}", "verify {}", "guess {}", "hint {}", "test {}", "{}")]
    for name, way in ways:
        yield from _judging(arena, study, name, way)


def _call(write: Callable[[str, dict[str, Any]], str], name: str, argument: str, text: str) -> str:
    return write(name, {argument: text})


def _judging(arena: Arena, study: Study, name: str, way: Callable[[str], str]) -> Iterator[Finding]:
    right: set[str] = set()
    wrong: set[str] = set()
    shown = None
    slower: list[tuple[float, float]] = []
    tasks = list(study.golds.items())[:_PROBED]
    for task, gold in tasks:
        replies: list[tuple[str, float]] = []
        for text in (gold, *_wrong(study, gold)):
            played, seconds = _timed(arena, task, way(text))
            if played is None:
                return
            replies.append((_masked(played.last, text), seconds))
        right.add(replies[0][0])
        wrong.update(said for said, _ in replies[1:])
        slower.append((replies[0][1], max(seconds for _, seconds in replies[1:])))
        if shown is None:
            other = _wrong(study, gold)[0]
            shown = arena.play(task, scripted([way(other), way(gold), study.written(task)]))
    verdict = len(right) == 1 and len(wrong) == 1 and right != wrong
    if verdict:
        why = f"it says {next(iter(right))!r} of the right answer and {next(iter(wrong))!r} of others, in every task"
        yield Finding("tool", name, why, shown)
    gaps = [own - others for own, others in slower]
    if not verdict and min(map(abs, gaps)) > _SLOW and (min(gaps) > 0 or max(gaps) < 0):
        why = f"the right answer takes {1000 * statistics.median(gaps):+.0f} ms, on {len(gaps)} of {len(gaps)} tasks"
        yield Finding("timing", name, why, shown)


def _wrong(study: Study, gold: str) -> list[str]:
    """Return wrong answers of the same kind: for numbers others near them, else answers to other tasks."""
    try:
        number = int(gold.replace(",", ""))
    except ValueError:
        others = [text for text in dict.fromkeys(study.golds.values()) if normal(text) != normal(gold)]
        return others[:_WRONG]
    return [str(number + step) for step in (1, 2, -1, 10)][:_WRONG]


def _masked(reply: str, text: str) -> str:
    return reply.replace(text, "...")[:200]


def _timed(arena: Arena, task: int, action: str) -> tuple[Played | None, float]:
    """Return the episode of one action and its seconds; None if the action ends the episode."""
    best = float("inf")
    for _ in range(2):
        view_time = [0.0]
        played = arena.play(task, _watched(action, view_time))
        if played.over or played.error or not played.actions:
            return None, 0.0
        best = min(best, view_time[0])
    return played, best


def _watched(action: str, spent: list[float]) -> Act:
    def act(view: View) -> str | None:
        if view.step == 0:
            spent[0] = time.perf_counter()
            return action
        spent[0] = time.perf_counter() - spent[0]
        return None

    return act
