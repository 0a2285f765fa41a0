"""Environments on other machines: a server that speaks OpenEnv's protocol, and a client that is an environment.

from agent_envs.serving import EnvServer, RemoteEnv, ServedEnv
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["EnvServer", "RemoteEnv", "ServedEnv"]

_HOMES = {"EnvServer": "server", "RemoteEnv": "remote_env", "ServedEnv": "served_env"}


def __getattr__(name: str) -> Any:
    """The client needs nothing of what the server needs, and the other way round."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"agent_envs.serving.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'agent_envs.serving' has no attribute {name!r}")
