"""Tools as a server lists them: data, which is checked before a policy is offered any.

A schema must not refer to other addresses, which a validator would open. Its regular expressions, which could take for
ever, are shown to the policy and left to the server to check.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agent_envs.checks import shown
from agent_envs.errors import BackendReplyError, first_line
from agent_envs.messages import ToolSpec
from agent_envs.pictures.picture import Pictured
from agent_envs.text import clean_text, plain
from agent_envs.tools.base import Tool, tool_spec

__all__ = ["ListedTool", "OfferedTool", "checked_tools"]

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")


class ListedTool(NamedTuple):
    """A tool as a server lists it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON schema of its arguments."""

    def checked(self) -> dict[str, Any]:
        """Return the schema without regular expressions."""
        return _without_patterns(self.parameters)


class OfferedTool(Tool):
    """A server's tool as the policy calls it. Its full schema is shown, the one without patterns is checked."""

    def __init__(self, tool: ListedTool, ask: Callable[[str, dict[str, Any]], str | Pictured]) -> None:
        self.name, self.description, self.parameters = tool.name, tool.description, tool.checked()
        self._tool, self._ask = tool, ask

    @property
    def spec(self) -> ToolSpec:
        spec = tool_spec(self)
        spec["function"]["parameters"] = copy.deepcopy(self._tool.parameters)  # callers may change theirs
        return spec

    def call(self, **arguments: Any) -> str | Pictured:
        return self._ask(self.name, arguments)


def checked_tools(tools: Sequence[ListedTool], where: str) -> list[ListedTool]:
    """Return tools that can be offered to a policy; a BackendReplyError says which cannot."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    checked = []
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise BackendReplyError(
                f"{where}: expected a tool's name of letters, digits and _./-, got {tool.name!r:.80}"
            )
        try:
            schema = {"type": "object", "properties": {}, **copy.deepcopy(tool.parameters)}
            outside = next((ref for ref in _references(schema) if not ref.startswith("#")), None)
            if outside is not None or schema["type"] != "object":
                raise BackendReplyError(
                    f"{where}: the schema of {tool.name!r} must be an object's and refer to nothing outside of it, got "
                    f"{plain(shown(outside or schema['type']))}"
                )
            Draft202012Validator.check_schema(_without_patterns(schema))
        except (SchemaError, RecursionError) as e:
            raise BackendReplyError(f"{where}: the schema of {tool.name!r} is not valid: {plain(first_line(e))}") from e
        checked.append(ListedTool(tool.name, clean_text(tool.description), schema))
    names = [tool.name for tool in checked]
    if len(set(names)) < len(names):
        raise BackendReplyError(f"{where} lists two tools of one name: {plain(shown(sorted(names)))}")
    return checked


def _references(value: Any) -> list[str]:
    """Return what a schema refers to, at any depth."""
    found, waiting = [], [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found += [ref for key in ("$ref", "$dynamicRef") if isinstance(ref := value.get(key), str)]
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _without_patterns(schema: Any) -> Any:
    """Return a schema without regular expressions, and without what they would allow being forbidden.

    >>> _without_patterns({"properties": {"pattern": {"type": "string", "pattern": "(a+)+$"}}})
    {'properties': {'pattern': {'type': 'string'}}}
    """
    if isinstance(schema, list):
        return [_without_patterns(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    left = {"pattern", "patternProperties"} | ({"additionalProperties"} if "patternProperties" in schema else set())
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions", "dependentSchemas") and isinstance(value, dict):
            found[key] = {name: _without_patterns(inner) for name, inner in value.items()}
        elif key not in left:
            found[key] = value if key in ("const", "default", "enum", "examples") else _without_patterns(value)
    return found
