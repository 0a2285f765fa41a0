"""How wrappers are named and ordered. The wrappers themselves are in `agent_envs.wrappers`."""
