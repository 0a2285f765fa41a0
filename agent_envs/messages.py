"""Chat messages and tool calls, in the form that chat templates and OpenAI-compatible servers take.

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
"""What a policy sees: the environment's reply, or with ``ChatMessages`` the whole next prompt."""


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
        """Return the call as an entry of an assistant message's ``tool_calls``."""
        function = {"name": self.name, "arguments": json.dumps(self.arguments)}
        return {"id": call_id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A tool call that could not be read."""

    error: str
    """What was expected and what came instead, for the policy."""
    raw: str = ""
    """The text that could not be read."""


def join_tool_results(results: list[dict[str, Any]]) -> str:
    """Return the observation that shows tool results: their contents in call order, one per line."""
    if len(results) == 1:
        return results[0]["content"]
    return "\n".join(result["content"] for result in results)


def observation_messages(observation: str, info: Mapping[str, Any]) -> list[Message]:
    """Return the messages that show an observation to a chat model.

    Tool results become one message of role ``tool`` per call. Any other observation, or one that a wrapper or a length
    limit has changed, becomes one message of role ``user``. If ``info["rebuilt"]`` is true, the conversation starts
    again from this observation.
    """
    results = info.get("tool_results")
    if results and not info.get("rebuilt", False) and join_tool_results(results) == observation:
        return [{"role": "tool", "name": r["name"], "content": r["content"]} for r in results]
    return [{"role": "user", "content": observation}]


def latest_words(observation: Observation) -> Observation:
    """Return what follows the policy's last message in a prompt, or all of it if the policy has not spoken yet.

    >>> prompt: list[Message] = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "North."}]
    >>> latest_words([*prompt, {"role": "user", "content": "A wall."}])
    [{'role': 'user', 'content': 'A wall.'}]
    """
    if isinstance(observation, str):
        return observation
    indices = [i for i, message in enumerate(observation) if message.get("role") == "assistant"]
    return observation[indices[-1] + 1 :] if indices else observation


def observation_text(observation: Observation) -> str:
    """Return an observation as text for a person, with the role of each message.

    >>> observation_text([{"role": "user", "content": "Go."}])
    '[user]\\nGo.'
    """
    if isinstance(observation, str):
        return observation
    return "\n\n".join(f"[{message.get('role', '')}]\n{message.get('content', '')}" for message in observation)
