"""What a policy is told of question answering: the instructions, and the prompts that are rebuilt at every step."""

from __future__ import annotations

from agent_envs.prompts.templates import EMPTY, NONE, PromptView, flat, one_line, sections
from agent_envs.prompts.texts import released

INSTRUCTIONS = {
    "tool": (
        "Answer the question. Search for what you need with the tool, as often as you need, then write the final "
        "answer, a few words only, between <answer> and </answer>."
    ),
    "react": (
        "Answer the question. Think, then write one action: search[entity] opens the page of an entity, "
        "lookup[keyword] shows the next sentence with the keyword on the open page, finish[answer] gives the final "
        "answer, a few words only."
    ),
    "search_r1": (
        "Answer the question. Reason between <think> and </think>. To search, write <search> query </search>; what is "
        "found comes between <information> and </information>. Search as often as you need, then write the final "
        "answer, a few words only, between <answer> and </answer>."
    ),
}

PARSERS = {"tool": "hermes", "react": "react", "search_r1": "search_r1"}
TOP_K = {"tool": 5, "react": 5, "search_r1": 3}
NO_QUERY = 'The arguments of the calls were invalid: expected an object such as {"query": "..."}.'
_PASSAGE_CHARS = 1200


def hotpotqa_prompt(view: PromptView) -> str:
    """Show the question, the searches, every passage found with its number and query, and the last problems."""
    searches = view.state["searches"]
    passages: dict[tuple[str, str], str] = {}  # to the query that found it first
    for search in searches:
        for passage in search["passages"]:
            passages.setdefault((passage["title"], passage["text"][:_PASSAGE_CHARS]), search["query"])
    lines = [
        f"[{number}] {f'(query: {one_line(query)}) ' if query else ''}{flat(f'{title}: {text}' if title else text)}"
        for number, ((title, text), query) in enumerate(passages.items(), start=1)
    ]
    empty = view.steps > 0 and not view.info["invalid_action"] and not (searches and searches[-1]["passages"])
    queries = [search["query"] for search in searches if search["query"]]
    return sections(
        ("Question", view.state["question"]),
        ("Searches so far", "\n".join(f"[Search] {one_line(query)}" for query in queries) or NONE),
        ("Passages found", "\n".join(lines) or NONE),
        ("Last result", view.observation if empty else ""),
        ("Problems with the last calls", view.problem_lines()),
    )


def _passages(view: PromptView) -> str:
    """List every passage once, with the query that found it first, as far as the characters go."""
    queries: dict[str, str] = {}
    for search in view.state["searches"]:
        for passage in search["passages"]:
            queries.setdefault(f"{passage['title']} {passage['text']}".strip(), search["query"])
    lines: list[str] = []
    left = view.budget
    for number, (text, query) in enumerate(queries.items(), start=1):
        line = f"[{number}] (query: {flat(query)}) {' '.join(text[:_PASSAGE_CHARS].splitlines())}"
        left -= len(line)
        if left < 0:
            lines.append(f"({len(queries) - number + 1} more are left out.)")
            break
        lines.append(line)
    return "\n".join(lines) or EMPTY


FIELDS = {
    "goal": lambda view: view.state["question"],
    "queries": lambda view: "\n".join(f"[Search] {flat(each['query'])}" for each in view.state["searches"]) or EMPTY,
    "passages": _passages,
}

CAPO = released("hotpotqa")
