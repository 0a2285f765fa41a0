"""Harmony, the format of gpt-oss: messages in channels; a message to a function is a tool call.

    <|channel|>analysis<|message|>I need to search.<|end|><|start|>assistant<|channel|>commentary
    to=functions.search <|constrain|>json<|message|>{"query": "gymnasium"}<|call|>

Format: https://cookbook.openai.com/articles/openai-harmony. The first ``<|start|>assistant`` is in the prompt.
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.dialects import without_foreign_calls
from agent_envs.parsers.json_calls import MAX_CALLS, check_call, no_calls, read_json, too_many, written_json
from agent_envs.parsers.parser import ParsedAction

_MESSAGE = "<|message|>"
_CALL = "<|call|>"
_START = "<|start|>"
_ENDS = re.compile(r"<\|end\|>|<\|return\|>|(?<=<\|call\|>)|(?=<\|start\|>)")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w./-]{1,200})")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class HarmonyParser:
    """Reads and writes Harmony's tool calls; the analysis channel is reasoning, the final channel the answer.

    >>> text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>"
    >>> HarmonyParser().parse(text)
    ParsedAction(text='4', calls=(), reasoning='hm')
    """

    name = "harmony"

    def parse(self, text: str) -> ParsedAction:
        """Parse a policy's text."""
        if _MESSAGE not in text:
            if "<|channel|>" in text:
                return ParsedAction("", (ParseFailure(f"a message has no {_MESSAGE}", text),))
            return without_foreign_calls(no_calls(text, (_CALL,), self.describe()), self)
        texts: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall | ParseFailure] = []
        messages = _ENDS.split(text)
        for message, following in zip(messages, [*messages[1:], ""], strict=True):
            message, called, _ = message.partition(_CALL)
            header, begun, content = message.partition(_MESSAGE)
            if not begun:
                texts.append(header.replace("<|start|>assistant", ""))
                continue
            recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
            if recipient is not None:
                if len(calls) == MAX_CALLS:
                    calls.append(too_many())
                    break
                if following.startswith(_START) and not called:
                    calls.append(ParseFailure(f"the tool call is not closed: expected {_CALL}", message))
                    continue
                calls.append(_read(recipient[1], content if content.strip() or not called else "{}"))
            elif _MESSAGE in content:
                calls.append(ParseFailure("a message is not closed: expected <|end|> before the next one", message))
            elif called:
                calls.append(ParseFailure(f"{_CALL} ends a message to no tool: expected {self.describe()}", message))
            elif channel is not None and channel[1] == "analysis":
                reasoning.append(content)
            else:
                texts.append(content)
        return without_foreign_calls(ParsedAction("".join(texts).strip(), tuple(calls), "\n".join(reasoning)), self)

    def format(self, call: ToolCall) -> str:
        body = written_json(call.arguments)
        return f"<|channel|>commentary to=functions.{call.name} <|constrain|>json{_MESSAGE}{body}{_CALL}"

    def describe(self) -> str:
        return f"<|channel|>commentary to=functions.NAME <|constrain|>json{_MESSAGE}{{...}}{_CALL}"


def _read(name: str, content: str) -> ToolCall | ParseFailure:
    try:
        value, end = read_json(content, 0)
    except ValueError as e:
        return ParseFailure(f"the arguments are not valid JSON: {e}", content)
    if end < len(content):
        return ParseFailure("something follows the arguments", content)
    return check_call({"name": name, "arguments": value}, content)
