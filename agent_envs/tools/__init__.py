"""Tools a policy can call, and the registry that runs them."""

from agent_envs.tools.base import FunctionTool, Tool, tool, tool_spec
from agent_envs.tools.registry import ToolRegistry, ToolResult

__all__ = ["FunctionTool", "Tool", "ToolRegistry", "ToolResult", "tool", "tool_spec"]


def __dir__() -> list[str]:
    return __all__
