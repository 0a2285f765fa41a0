"""What a policy is told of paper search: the instructions, and the prompts that are rebuilt at every step."""

from __future__ import annotations

from agent_envs.prompts.templates import EMPTY, NONE, PromptView
from agent_envs.prompts.texts import released

INSTRUCTIONS = (
    "Find the papers that answer the query. Search for papers, and expand papers of the pool to get their references "
    "and citations; several calls at once run side by side. What fits the query joins the pool. When nothing more is "
    "to be found, end the search with the tool finish, or with a text without a call."
)


def papersearch_prompt(view: PromptView) -> str:
    """Show the query, the calls so far, the best papers of the pool and the problems of the last turn."""
    state = view.state
    parts = [
        f"Query: {state['query']}",
        "\n".join(["History:", *(state["calls"] or [NONE])]),
        f"Papers ({state['pool']} in the pool):\n" + ("\n".join(state["papers"]) or NONE),
    ]
    if state["problems"]:
        parts.append("\n".join(["Problems:", *state["problems"]]))
    return "\n\n".join(parts)


_NO_PAPERS = "No papers were found yet."
_LEGEND = """Papers found so far:
[EXP]: its citations and references were fetched.
[NEW]: it was not expanded yet.
An entry is [id] (score) [EXP or NEW] title, and the abstract."""

FIELDS = {
    "goal": lambda view: view.state["query"],
    "calls": lambda view: "\n".join(view.state["calls"]) or EMPTY,
    "papers": lambda view: "\n\n".join([_LEGEND if view.state["papers"] else _NO_PAPERS, *view.state["papers"]]),
}

CAPO = released("papersearch")
