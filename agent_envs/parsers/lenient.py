"""Hermes calls as the released flows of Agent-R1 read them: bad blocks are skipped, and reasoning is text as any other.

https://github.com/AgentR1/CAPO (August 2026), its tool-call readers.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from agent_envs.messages import ToolCall
from agent_envs.parsers.hermes import HermesParser
from agent_envs.parsers.json_calls import MAX_CALLS, load_json
from agent_envs.parsers.parser import ParsedAction

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_BLOCK = re.compile(f"{_OPEN}(.*?){_CLOSE}", re.DOTALL)
_LONGEST_LITERAL = 8192  # characters
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class HermesJsonParser(HermesParser):
    """Reads every ``<tool_call>...</tool_call>`` pair that holds a call, wherever it stands; the rest is text.

    A block that cannot be read and a tag without its partner are no call. Arguments that are a string are read once
    more; those that are no object after that are left out.

    >>> HermesJsonParser().parse('<think><tool_call>{"name": "f", "arguments": "{}"}</tool_call><tool_call>{').calls
    (ToolCall(name='f', arguments={}, raw='{"name": "f", "arguments": "{}"}'),)
    """

    name = "hermes_json"
    lenient = False

    def parse(self, text: str) -> ParsedAction:
        """Parse a policy's text."""
        closed = text[: text.rfind(_CLOSE) + len(_CLOSE)]  # in which every tag has an end: reading takes linear time
        bodies = _BLOCK.findall(closed)[:MAX_CALLS]
        calls = [call for body in bodies if (call := self._call(body, load_json))]
        if self.lenient and not calls:
            calls = [call for body in bodies if (call := self._call(body, self._load))]
        return ParsedAction("" if calls else text.strip(), tuple(calls))

    def _call(self, body: str, load: Any) -> ToolCall | None:
        try:
            value = load(body.strip())
        except ValueError:
            return None
        if not (isinstance(value, dict) and isinstance(value.get("name"), str) and "arguments" in value):
            return None
        arguments = value["arguments"]
        if isinstance(arguments, str):
            try:
                loaded = self._load(arguments)
            except ValueError:
                loaded = None
            arguments = loaded if isinstance(loaded, dict) else arguments
        if not isinstance(arguments, dict):
            arguments = {"": arguments} if self.lenient else {}
        return ToolCall(value["name"], arguments, body)

    def _load(self, text: str) -> Any:
        try:
            return load_json(text)
        except ValueError:
            if not self.lenient:
                raise
            return _literal(text)


class HermesPythonParser(HermesJsonParser):
    """As `HermesJsonParser`; if no block is JSON, blocks may be Python literals, such as objects in single quotes.

    A literal has at most 8,192 characters and no double underscore, and is never evaluated as code. Arguments that are
    no object, such as a bare string, stand under the key "".

    >>> HermesPythonParser().parse("<tool_call>{'name': 'f', 'arguments': {'a': 1}}</tool_call>").calls[0].arguments
    {'a': 1}
    """

    name = "hermes_python"
    lenient = True


def _literal(text: str) -> Any:
    """Return the value of a Python literal that JSON can hold. Raises ValueError if it is none."""
    if len(text) > _LONGEST_LITERAL or "__" in text:
        raise ValueError("too long, or with a double underscore")
    # A backslash before a letter without a meaning is itself; doubled here, as Python would warn of it.
    text = _ESCAPE.sub(lambda m: m[0] if m[1] in "\n\\'\"abfnrtvxNuU01234567" else f"\\{m[0]}", text)
    try:
        return load_json(json.dumps(ast.literal_eval(text), allow_nan=False))
    except (SyntaxError, TypeError, RecursionError, MemoryError) as e:
        raise ValueError("no literal") from e
