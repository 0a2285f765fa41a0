"""A solver of generated questions that acts on what the environment has shown it, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from agent_envs.envs.qa.episode import QAState
from agent_envs.envs.qa.reader import Missing, cues_for, parse_question, queries_for, solve

__all__ = ["UNKNOWN", "expert_text", "format_answer", "wrong_text"]

UNKNOWN = "unknown"
"""The answer given where no search finds what is missing."""

FormatCall = Callable[[str, dict[str, Any]], str]


def format_answer(style: str, answer: str) -> str:
    """A final answer in the words of a style."""
    return f"finish[{answer}]" if style == "react" else f"<answer>{answer}</answer>"


def expert_text(question: str, state: QAState, style: str, format_call: FormatCall, max_calls: int) -> str | None:
    """The next text of a solver that reads the question and what was shown so far.

    Args:
        question: The question.
        state: What has been searched for and shown.
        style: "tool", "react" or "search_r1".
        format_call: Writes a call in the style's format.
        max_calls: Calls per text, where the style has several.

    Returns:
        Searches, or the answer; None where the question is not about the generated encyclopaedia.
    """
    plan = parse_question(question)
    if plan is None:
        return None
    found = solve(plan, state.pages)
    if isinstance(found, str):
        return format_answer(style, found)
    if style == "react":
        action = next((a for missing in found for a in [_next_react(missing, state, format_call)] if a), None)
        return action or format_answer(style, UNKNOWN)
    untried = [[query for query in queries_for(missing) if query not in state.queries] for missing in found]
    if not all(untried):
        return format_answer(style, UNKNOWN)  # without this one the rest is of no use
    if style == "search_r1":
        return format_call("search", {"query": untried[0][0]})
    # One query for each side at first; where it failed, the others side by side.
    chosen: list[str] = []
    for missing, queries in zip(found, untried, strict=True):
        chosen += queries[: 1 if len(queries) == len(list(queries_for(missing))) else 2]
    calls = [format_call("search", {"query": query}) for query in dict.fromkeys(chosen)]
    return "\n".join(calls[:max_calls])


def _next_react(missing: Missing, state: QAState, format_call: FormatCall) -> str | None:
    """A page to open or a keyword to look up; None where everything was tried."""
    if missing.title:
        keyword, places, shown = state.found
        if state.page[0] == missing.title and keyword and shown < len(places):
            return format_call("lookup", {"keyword": keyword})
        cues = [cue for cue in cues_for(missing) if (missing.title, cue) not in state.looked_up]
        if not cues:
            return None
        if state.page[0] != missing.title:
            return format_call("search", {"entity": missing.title})
        return format_call("lookup", {"keyword": cues[0]})
    name, noun = missing.mention.name, missing.mention.noun
    titles = [name, *([f"{name} ({noun})"] if noun else []), *list(queries_for(missing))[:2]]
    return next((format_call("search", {"entity": t}) for t in titles if t not in state.queries), None)


def wrong_text(state: QAState, style: str, format_call: FormatCall, right: str, rng: np.random.Generator) -> str:
    """A well-formed text that errs: a search for something else, or another answer.

    Args:
        state: What has been searched for and shown.
        style: "tool", "react" or "search_r1".
        format_call: Writes a call in the style's format.
        right: What the expert would write.
        rng: Source of the error.
    """
    titles = [title for title in state.pages if title] or ["a town", "the mayor", "a novel", "the river"]
    other = titles[int(rng.integers(len(titles)))]
    if right.startswith(("<answer>", "finish[")):
        given = format_answer(style, other)
        return given if given != right else format_answer(style, UNKNOWN)
    return format_call("search", {"entity" if style == "react" else "query": other})
