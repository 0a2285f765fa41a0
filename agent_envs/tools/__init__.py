"""Tools a policy can call, and the registry that runs them."""

from agent_envs.tools.base import FunctionTool, Tool, tool
from agent_envs.tools.registry import ToolRegistry, ToolResult

__all__ = ["FunctionTool", "Tool", "ToolRegistry", "ToolResult", "tool"]


def __dir__() -> list[str]:
    return __all__
