"""The Model Context Protocol, as far as a program needs it to call an environment's tools: JSON-RPC over HTTP.

Source: https://modelcontextprotocol.io/specification (streamable HTTP; every answer is one JSON object).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_envs._version import __version__
from agent_envs.errors import AgentEnvsError
from agent_envs.messages import ToolSpec

ACT: ToolSpec = {
    "type": "function",
    "function": {
        "name": "act",
        "description": "Take an action in the environment and see what comes of it.",
        "parameters": {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]},
    },
}
"""The tool of an environment whose actions are texts."""
_VERSION = "2025-06-18"
_NO_METHOD, _BAD_ARGUMENTS = -32601, -32602


async def answer(
    request: Mapping[str, Any], tools: Sequence[ToolSpec], act: Callable[[str, dict[str, Any]], Awaitable[str]]
) -> dict[str, Any] | None:
    """Return the answer to a request, None to a notification; `act` calls a tool and returns its result."""
    if "id" not in request:
        return None
    about = {"jsonrpc": "2.0", "id": request["id"]}
    method, params = request.get("method"), request.get("params")
    params = params if isinstance(params, Mapping) else {}
    if method == "initialize":
        server = {"name": "agent_envs", "version": __version__}
        asked = params.get("protocolVersion")
        version = asked if isinstance(asked, str) else _VERSION
        return about | {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}}
    if method == "ping":
        return about | {"result": {}}
    if method == "tools/list":
        listed = [
            {"name": f["name"], "description": f["description"], "inputSchema": f["parameters"]}
            for f in (tool["function"] for tool in tools)
        ]
        return about | {"result": {"tools": listed}}
    if method != "tools/call":
        return about | {"error": {"code": _NO_METHOD, "message": f"there is no method {str(method)[:80]!r}"}}
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not any(tool["function"]["name"] == name for tool in tools) or not isinstance(arguments, dict):
        return about | {"error": {"code": _BAD_ARGUMENTS, "message": f"there is no tool {str(name)[:80]!r}"}}
    try:
        text, failed = await act(str(name), arguments), False
    except AgentEnvsError as e:
        text, failed = str(e), True
    return about | {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}
