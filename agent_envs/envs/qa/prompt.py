"""The prompt of a question that is rebuilt at every step, as in Agent-R1's HotpotQA flow."""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView, flat, one_line, sections

__all__ = ["hotpotqa_prompt"]

_PASSAGE_CHARS = 1200


def hotpotqa_prompt(view: PromptView) -> str:
    """Show the question, the searches, every passage found with its number and query, and the last problems."""
    searches = view.state["searches"]
    passages: dict[tuple[str, str], str] = {}  # to the query that found it first
    for search in searches:
        for passage in search["passages"]:
            passages.setdefault((passage["title"], passage["text"][:_PASSAGE_CHARS]), search["query"])
    found = [
        f"[{number}] {f'(query: {one_line(query)}) ' if query else ''}{flat(f'{title}: {text}' if title else text)}"
        for number, ((title, text), query) in enumerate(passages.items(), start=1)
    ]
    empty = view.steps > 0 and not view.info["invalid_action"] and not (searches and searches[-1]["passages"])
    queries = [search["query"] for search in searches if search["query"]]
    return sections(
        ("Question", view.state["question"]),
        ("Searches so far", "\n".join(f"[Search] {one_line(query)}" for query in queries) or NONE),
        ("Passages found", "\n".join(found) or NONE),
        ("Last result", view.observation if empty else ""),
        ("Problems with the last calls", view.problem_lines()),
    )
