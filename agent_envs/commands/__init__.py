"""One module per subcommand of `agentr1`: its arguments and what it does. `agent_envs.cli` imports the one called."""

__all__: list[str] = []
