"""Tools as a server lists them: data, which is checked before a policy is offered any.

A schema must not refer to other addresses, which a validator would open. Its regular expressions, which could take for
ever, are shown to the policy and left to the server to check.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from agent_envs.checks import shown
from agent_envs.errors import BackendReplyError, ConfigError, first_line
from agent_envs.messages import ToolSpec
from agent_envs.pictures.picture import Pictured
from agent_envs.text import clean_text
from agent_envs.tools.base import Tool, tool_spec
from agent_envs.tools.schemas import compiled, tidied

_logger = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_PATTERNS = frozenset({"pattern", "patternProperties"})


class ListedTool(NamedTuple):
    """A tool as a server lists it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON schema of its arguments."""


class OfferedTool(Tool):
    """A server's tool as the policy calls it. Its full schema is shown, the one without patterns is checked."""

    def __init__(self, tool: ListedTool, ask: Callable[[str, dict[str, Any]], str | Pictured]) -> None:
        self.name, self.description, self.parameters = tool.name, tool.description, tidied(tool.parameters, _PATTERNS)
        self._tool, self._ask = tool, ask

    @property
    def spec(self) -> ToolSpec:
        return tool_spec(self._tool)

    def call(self, /, **arguments: Any) -> str | Pictured:
        return self._ask(self.name, arguments)


def checked_tools(tools: Any, where: str) -> list[ListedTool]:
    """Return those tools of a server that can be offered to a policy; the log says which cannot, and why.

    Args:
        tools: What the server lists: objects with "name", "description" and "inputSchema" (or "input_schema").
        where: The server, for the log.

    Raises:
        BackendReplyError: It is no list, has two tools of one name, or tools of which none can be offered.
    """
    if not isinstance(tools, list):
        raise BackendReplyError(f"{where}: expected a list of tools, got {shown(tools)}")
    checked: dict[str, ListedTool] = {}
    problems = []
    for tool in tools:
        try:
            listed = _read(tool)
            compiled(json.dumps(tidied(listed.parameters, _PATTERNS)))
        except (ConfigError, RecursionError, TypeError) as e:
            name = tool.get("name") if isinstance(tool, dict) else tool
            problems.append(f"{where}: the tool {shown(name)} is left out: {first_line(e)}")
            _logger.warning("%s", problems[-1])
            continue
        if listed.name in checked:
            raise BackendReplyError(f"{where} lists two tools of one name: {listed.name!r}")
        checked[listed.name] = listed
    if problems and not checked:
        raise BackendReplyError(problems[0])
    return list(checked.values())


def _read(tool: Any) -> ListedTool:
    if not isinstance(tool, dict):
        raise ConfigError("expected an object with a name and a schema")
    name, description = tool.get("name"), tool.get("description")
    schema = tool.get("inputSchema", tool.get("input_schema"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError("expected a name of letters, digits and _./-")
    if not isinstance(schema, dict | None):
        raise ConfigError(f"the schema must be an object, got {shown(schema)}")
    parameters = {"type": "object", "properties": {}, **tidied(schema or {})}
    return ListedTool(
        name, clean_text(description if description and isinstance(description, str) else name), parameters
    )
