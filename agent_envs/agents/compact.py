"""The agent that lets the policy write its own summary when the conversation becomes long."""

from __future__ import annotations

from itertools import chain
from typing import Any

from agent_envs.messages import Message

_ASK = "Sum up what was done and found so far, so that the task can be finished from your words alone."


async def compact(env: Any, model: Any, after: int = 6000, keep: int = 2) -> None:
    """Play one call per step; before a prompt of more than `after` tokens, the model sums up all but `keep` exchanges.

    The summary is a step like the others and is trained. It follows the task in the prompts after it, and the next one
    covers it.

    Args:
        env: The environment.
        model: The model.
        after: Tokens of a prompt beyond which a summary is asked for.
        keep: Exchanges that stay in full.
    """
    opening = messages = [{"role": "system", "content": env.instructions}, *env.messages]
    exchanges: list[list[Message]] = []
    while not env.over:
        if len(exchanges) > keep and model.count(messages, env.tools) > after:
            summary = await model.chat([*messages, {"role": "user", "content": _ASK}], env.tools)
            exchanges = exchanges[len(exchanges) - keep :]
            so_far: Message = {"role": "user", "content": f"So far:\n{summary.text}"}
            messages = [*opening, so_far, *chain.from_iterable(exchanges)]
        reply = await model.chat(messages, env.tools)
        await env.step(reply)
        exchanges.append([reply.message, *env.messages])
        messages = [*messages, *exchanges[-1]]
