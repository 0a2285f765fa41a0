"""OpenEnv's description of an environment, and JSON schemas of its messages."""

from __future__ import annotations

from typing import Any

from agent_envs._version import __version__

__all__ = ["environment_metadata", "schemas"]


def environment_metadata(about: dict[str, Any]) -> dict[str, Any]:
    """Return OpenEnv's `EnvironmentMetadata` of an environment.

    Args:
        about: What `served_env.describe` returns.

    >>> environment_metadata({"env": "Mine/Say-v0", "description": "Say a word.", "instructions": "Say it."})["name"]
    'Mine/Say-v0'
    """
    return {
        "name": about["env"],
        "description": about["description"],
        "readme_content": about["instructions"] or None,
        "version": __version__,
        "author": None,
        "documentation_url": None,
    }


def schemas(about: dict[str, Any]) -> dict[str, Any]:
    """Return JSON schemas of actions, observations and states."""
    text = {"type": "string", "maxLength": about["action_length"], "description": "the policy's text, verbatim"}
    forms: list[dict[str, Any]] = [
        {
            "type": "object",
            "properties": {"text": text, "metadata": {"type": "object"}},
            "required": ["text"],
            "additionalProperties": False,
        }
    ]
    if about["tools"]:
        names = [spec["function"]["name"] for spec in about["tools"]]
        call = {"type": {"const": "call_tool"}, "tool_name": {"enum": names}, "arguments": {"type": "object"}}
        forms.append({"type": "object", "properties": call, "required": ["type", "tool_name"]})
        forms.append({"type": "object", "properties": {"type": {"const": "list_tools"}}, "required": ["type"]})
    observation = {
        "text": {"type": "string", "maxLength": about["observation_length"]},
        "terminated": {"type": "boolean", "description": "the task ended"},
        "truncated": {"type": "boolean", "description": "a limit ended the episode"},
        "info": {"type": "object", "description": "task_id, index, score, success, invalid_action and more"},
        "messages": {"type": "array", "description": "the observation where it is a list of chat messages"},
        "instructions": {"type": "string", "description": "how to act; at reset"},
        "tools": {"type": "array", "description": "the tools as chat templates take them; at reset"},
        "tool_instructions": {"type": "string", "description": "the tools in words; at reset"},
    }
    state = {
        "episode_id": {"type": ["string", "null"]},
        "step_count": {"type": "integer", "minimum": 0},
        "env": {"type": "string"},
        "done": {"type": "boolean"},
    }
    return {
        "action": {"title": about["env"], **(forms[0] if len(forms) == 1 else {"anyOf": forms})},
        "observation": {"type": "object", "properties": observation, "required": list(observation)[:4]},
        "state": {"type": "object", "properties": state},
    }
