"""What a policy is told of paper search: the instructions, and the prompt rebuilt at every step."""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView

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
