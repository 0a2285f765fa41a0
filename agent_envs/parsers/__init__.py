"""Wire formats of tool calls: one pure module each."""

from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.parsers.base import ParsedAction, Parser
from agent_envs.parsers.hermes import HermesParser

__all__ = ["HermesParser", "ParsedAction", "Parser", "get_parser"]

_PARSERS: dict[str, type[Parser]] = {"hermes": HermesParser}


def get_parser(name: str) -> Parser:
    """The parser of a wire format by name.

    Raises:
        ConfigError: There is no such format.
    """
    if name not in _PARSERS:
        raise ConfigError(f"unknown tool-call format {name!r}.{did_you_mean(name, _PARSERS)}")
    return _PARSERS[name]()
