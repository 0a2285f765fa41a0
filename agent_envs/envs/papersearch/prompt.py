"""The prompt of a paper search that is rebuilt at every step."""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView

__all__ = ["papersearch_prompt"]


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
