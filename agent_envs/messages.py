"""Chat messages and tool calls as plain records, in the form chat templates and OpenAI-compatible servers take.

Formats: https://platform.openai.com/docs/api-reference/chat (messages, tools); Hugging Face's
``apply_chat_template``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

__all__ = [
    "FunctionSpec",
    "Message",
    "Observation",
    "ParseFailure",
    "ToolCall",
    "ToolSpec",
    "join_tool_results",
    "latest_words",
    "observation_messages",
    "observation_text",
]


class FunctionSpec(TypedDict):
    """Name, description and the JSON schema of the arguments of one function."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolSpec(TypedDict):
    """One tool, as a chat template's ``tools=`` takes it."""

    type: Literal["function"]
    function: FunctionSpec


class Message(TypedDict):
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    name: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]


Observation = str | list[Message]
"""What a policy sees: the environment's new words, or (``ChatMessages``) the whole next prompt."""


@dataclass(slots=True)  # not frozen, for speed: see Outcome
class ToolCall:
    """A tool call that a parser could read."""

    name: str
    """The tool's name, as written."""
    arguments: dict[str, Any]
    """The decoded arguments."""
    raw: str = ""
    """The text the call was read from."""

    def to_message_entry(self, call_id: str) -> dict[str, Any]:
        """The call as an entry of an assistant message's ``tool_calls``."""
        function = {"name": self.name, "arguments": json.dumps(self.arguments)}
        return {"id": call_id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A tool call that was begun and could not be read."""

    error: str
    """What was expected and what came, for the policy to read."""
    raw: str = ""
    """The text that could not be read."""


def join_tool_results(results: list[dict[str, Any]]) -> str:
    """The observation that shows tool results: their contents in call order, a line break between two."""
    if len(results) == 1:
        return results[0]["content"]
    return "\n".join(result["content"] for result in results)


def observation_messages(observation: str, info: Mapping[str, Any]) -> list[Message]:
    """The messages that show an observation to a chat model.

    Tool results become one message of role ``tool`` per call. Any other observation, and one that a wrapper or
    a length limit has changed, is one message of role ``user``. Where ``info["rebuilt"]`` is true, the observation is
    all there is to know: the conversation begins anew with it.
    """
    results = info.get("tool_results")
    if results and not info.get("rebuilt", False) and join_tool_results(results) == observation:
        return [{"role": "tool", "name": r["name"], "content": r["content"]} for r in results]
    return [{"role": "user", "content": observation}]


def latest_words(observation: Observation) -> Observation:
    """What answers the policy's last message: the end of a whole prompt, which is whole where it begins anew.

    >>> prompt: list[Message] = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "North."}]
    >>> latest_words([*prompt, {"role": "user", "content": "A wall."}])
    [{'role': 'user', 'content': 'A wall.'}]
    """
    if isinstance(observation, str):
        return observation
    said = [i for i, message in enumerate(observation) if message.get("role") == "assistant"]
    return observation[said[-1] + 1 :] if said else observation


def observation_text(observation: Observation) -> str:
    """An observation for a person to read: messages come with their roles.

    >>> observation_text([{"role": "user", "content": "Go."}])
    '[user]\\nGo.'
    """
    if isinstance(observation, str):
        return observation
    return "\n\n".join(f"[{message.get('role', '')}]\n{message.get('content', '')}" for message in observation)
