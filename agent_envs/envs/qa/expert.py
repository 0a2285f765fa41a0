"""A solver of generated questions that acts only on what was shown, and one that knows which articles are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from agent_envs.datasets.qa.rows import QATask
from agent_envs.envs.qa.episode import QAState
from agent_envs.envs.qa.reader import RELATIONS_BY_NAME, Missing, parse_question, queries_for, solve

UNKNOWN = "unknown"  # the answer if no search finds what is missing

FormatCall = Callable[[str, dict[str, Any]], str]


def format_answer(style: str, answer: str) -> str:
    """Write a final answer in the format of a style."""
    return f"finish[{answer}]" if style == "react" else f"<answer>{answer}</answer>"


def expert_text(question: str, state: QAState, style: str, format_call: FormatCall, max_calls: int) -> str | None:
    """Return searches, in style "tool" up to `max_calls` at once, or the answer; None for an unknown question."""
    plan = parse_question(question)
    if plan is None:
        return None
    solution = solve(plan, state.pages)
    if isinstance(solution, str):
        return format_answer(style, solution)
    if style == "react":
        actions = (_next_react(missing, state, format_call) for missing in solution)
        return next(filter(None, actions), format_answer(style, UNKNOWN))
    untried = [[query for query in queries_for(missing) if query not in state.queries] for missing in solution]
    if not all(untried):
        return format_answer(style, UNKNOWN)  # without this one, the others do not help
    # First one query for each side; for a side where it failed, two further ones at once.
    chosen: list[str] = []
    for missing, queries in zip(solution, untried, strict=True):
        chosen += queries[: 1 if len(queries) == len(list(queries_for(missing))) else 2]
    calls = [format_call("search", {"query": query}) for query in dict.fromkeys(chosen)]
    return "\n".join(calls[: max_calls if style == "tool" else 1])


def informed_text(task: QATask, state: QAState, style: str, format_call: FormatCall, max_calls: int) -> str | None:
    """Return searches for supporting articles, those that were named first, or the gold answer; None without any."""
    if not task.supporting:
        return None
    untried = [title for title in task.supporting if title not in state.pages and title not in state.queries]
    shown = "\n".join([task.question, *state.pages.values()])
    known = [title for title in untried if title in shown][: max_calls if style == "tool" else 1] or untried[:1]
    name = "entity" if style == "react" else "query"
    calls = [format_call("search", {name: title}) for title in known]
    return "\n".join(calls) or format_answer(style, task.answers[0])


def _next_react(missing: Missing, state: QAState, format_call: FormatCall) -> str | None:
    """Return a page to open or a keyword to look up; None if everything was tried."""
    if missing.title:
        keyword, indices, shown = state.lookup
        if state.page[0] == missing.title and keyword and shown < len(indices):
            return format_call("lookup", {"keyword": keyword})
        # Each sentence with the fact contains one of its cues.
        cues = [cue for cue in RELATIONS_BY_NAME[missing.fact].cues if (missing.title, cue) not in state.looked_up]
        if not cues:
            return None
        if state.page[0] != missing.title:
            return format_call("search", {"entity": missing.title})
        return format_call("lookup", {"keyword": cues[0]})
    name, noun = missing.mention.name, missing.mention.noun
    titles = [name, *([f"{name} ({noun})"] if noun else []), *list(queries_for(missing))[:2]]
    return next((format_call("search", {"entity": t}) for t in titles if t not in state.queries), None)


def wrong_text(state: QAState, style: str, format_call: FormatCall, right: str, rng: np.random.Generator) -> str:
    """Return a well-formed text with a mistake: a search for something else, or another answer than `right`."""
    titles = [title for title in state.pages if title] or ["a town", "the mayor", "a novel", "the river"]
    other = titles[int(rng.integers(len(titles)))]
    if right.startswith(("<answer>", "finish[")):
        answer = format_answer(style, other)
        return answer if answer != right else format_answer(style, UNKNOWN)
    return format_call("search", {"entity" if style == "react" else "query": other})
