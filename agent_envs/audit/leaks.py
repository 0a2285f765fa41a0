"""Looks for right answers where a policy should not see them: info, errors, tools, options, the time of a call."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agent_envs.audit.findings import KINDS, Finding, lower_bound
from agent_envs.audit.play import Act, Arena, Played, View, scripted
from agent_envs.audit.policies import judged
from agent_envs.audit.study import Study
from agent_envs.audit.texts import RULES, WHOLE, leaves, normal
from agent_envs.layers import offered_tools
from agent_envs.text_env import TextEnv

__all__ = ["leaks", "options", "tools"]

_TASKS = 24
_PROBED = 6
_PLANS = 12
_WRONG = 4
_SLOW = 0.02  # seconds
_OPTIONS = (
    "answer", "solution", "hint", "reveal", "debug", "show_answer", "cheat", "gold", "target", "expected", "label",
    "admin", "test", "skip",
)  # fmt: skip
_BAD = ("", "help", "?", "no such command", "<tool_call>{</tool_call>", "-1", "xyzzy")
# Words about the episode, and lists of what can be done now, are what a policy is meant to see.
_MEANT = frozenset({"reward_components", "anchor", "admissible_commands", "available_actions", "score", "success"})

Source = tuple[str, Callable[[int], "str | tuple[str, ...]"]]


def leaks(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding for each place from which an answer, or a plan that wins, can be copied."""
    tasks = arena.tasks[:_TASKS]
    seen: dict[str, dict[int, tuple[str | tuple[str, ...], list[str]]]] = {}
    for task in tasks:
        for name, value, before in _places(arena, task):
            seen.setdefault(name, {})[task] = (value, before)
    for name, values in seen.items():
        finding = _plan(arena, study, name, values)
        rules = {WHOLE: RULES[WHOLE]} if study.commands() else RULES
        for rule, copy in rules.items() if finding is None else ():
            finding = finding or _copied(arena, study, f"{rule} of {name}", copy, values)
        if finding is not None:
            yield finding


def _places(arena: Arena, task: int) -> Iterator[tuple[str, str | tuple[str, ...], list[str]]]:
    """Yield what is shown before an answer: the place's name, its text, and the actions that show it."""
    played = arena.play(task, scripted([]))
    for path, value in leaves(played.start_info):
        if path.partition(".")[0] not in _MEANT:
            yield f"info[{path!r}] of reset", value, []
    for tool in offered_tools(arena.env):
        for path, value in leaves(dict(tool["function"])):
            if path.rpartition(".")[2] not in ("type", "required"):
                yield f"the tools' description, {tool['function']['name']}.{path}", value, []
    for bad in _BAD:
        played = arena.play(task, scripted([bad]))
        if not played.over and played.results:
            yield f"the reply to {bad!r}", played.last, [bad]
            for path, value in leaves(played.results[-1][4]):
                if path.partition(".")[0] not in _MEANT and value != played.last:
                    yield f"info[{path!r}] after {bad!r}", value, [bad]
    for name, call in _calls(arena, task, played.start):
        played = arena.play(task, scripted([call]))
        if not played.over and played.results and len(played.last) < 1000:
            yield f"the result of {name}", played.last, [call]


def _calls(arena: Arena, task: int, question: str) -> Iterator[tuple[str, str]]:
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


def _plan(arena: Arena, study: Study, name: str, values: dict[int, Any]) -> Finding | None:
    """Play a list of texts as actions."""
    plans = {task: (value, before) for task, (value, before) in values.items() if isinstance(value, tuple)}
    ways: dict[str, Callable[[tuple[str, ...]], list[str]]] = {"played as actions": list}
    for form in study.forms[:2]:
        ways[f"its first entry, as {form}"] = lambda value, form=form: [form.format(value[0])]  # type: ignore[misc]
        ways[f"its last entry, as {form}"] = lambda value, form=form: [form.format(value[-1])]  # type: ignore[misc]
    for how, way in ways.items() if plans else ():
        some = list(plans.items())[:_PLANS]
        played = [arena.play(task, scripted([*before, *way(value)])) for task, (value, before) in some]
        if (finding := judged(study, "leak", f"{name}, {how}", played)[1]) is not None:
            return finding
    return None


def _copied(
    arena: Arena, study: Study, name: str, copy: Callable[[str], str], values: dict[int, Any]
) -> Finding | None:
    """Answer with what a rule copies, if it is the right answer, or if no answer is known."""
    found = {
        task: (copy(value), before)
        for task, (value, before) in values.items()
        if isinstance(value, str) and 0 < len(copy(value)) <= 500
    }
    if not found:
        return None
    if study.golds:
        hits = sum(normal(text) == normal(study.golds.get(task, "")) for task, (text, _) in found.items())
        if lower_bound(hits / len(found), len(found)) <= KINDS["leak"].limit:
            return None
    for form in study.forms[:4]:
        played = [arena.play(t, scripted([*before, form.format(text)])) for t, (text, before) in found.items()]
        if (finding := judged(study, "leak", f"{name}, as {form}", played)[1]) is not None:
            return finding
    return None


def options(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding for each option of reset that gives answers away or sets them."""
    base = arena.env.unwrapped
    names = [n for n in base.reset_options if n != "index"] if isinstance(base, TextEnv) else list(_OPTIONS)
    for name in names:
        own = "question" if name == "question" else ""
        for value in ("What is six times seven?",) if own else (True, "1791"):
            finding = _option(arena, study, name, value, bool(own))
            if finding is not None:
                yield finding
                break


def _option(arena: Arena, study: Study, name: str, value: Any, own: bool) -> Finding | None:
    tasks = arena.tasks[:_PROBED]
    plain = {task: arena.play(task, scripted([])) for task in tasks}
    try:
        given = {}
        for task in tasks:
            options = {name: value, **({"index": None} if own else {})}
            given[task] = arena.play(task, scripted([]), options=options)
    except Exception:  # noqa: BLE001  an option that is refused gives nothing away
        return None
    if any(played.error for played in given.values()):
        return None
    label = f"reset(options={{{name!r}: {value!r}}})"
    text = "42" if own else str(value)
    for form in study.forms[:4]:
        ends = [arena.play(t, scripted([form.format(text)]), options=given[t].options) for t in tasks]
        if all(map(study.solved, ends)) and len(ends) > 1:
            return Finding("option", label, f"the answer {text!r} is then right on {len(ends)} tasks", ends[0])
    for task in tasks:
        old = {normal(text) for _, entry in leaves(plain[task].start_info) for text in _texts(entry)}
        shown = [plain[task].start, given[task].start]
        new = [t for _, entry in leaves(given[task].start_info) for t in _texts(entry) if normal(t) not in old]
        new += [copy(shown[1]) for copy in RULES.values()] if shown[0] != shown[1] else []
        for candidate in dict.fromkeys(text for text in new if 0 < len(text) < 200):
            for form in study.forms[:4]:
                done = arena.play(task, scripted([form.format(candidate)]), options=given[task].options)
                bare = arena.play(task, scripted([form.format("1791")]), options=given[task].options)
                if study.solved(done) and not study.solved(bare):
                    return Finding("option", label, f"it shows the answer {candidate!r}", done)
    return None


def _texts(entry: str | tuple[str, ...]) -> Iterable[str]:
    return (entry,) if isinstance(entry, str) else entry


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
        if played.over or played.error or not played.results:
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
