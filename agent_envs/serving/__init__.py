"""Environments and search on other machines: a server that speaks OpenEnv's protocol and an environment that is its
client, and a server of search results.

from agent_envs.serving import EnvServer, RemoteEnv, SearchServer, ServedEnv
"""

from __future__ import annotations

from agent_envs.per_process import lazy_names

__all__ = ["EnvServer", "RemoteEnv", "SearchServer", "ServedEnv"]

# The client needs nothing that the server needs, nor the other way round.
__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {"EnvServer": "server", "RemoteEnv": "remote_env", "SearchServer": "search", "ServedEnv": "served_env"},
)
