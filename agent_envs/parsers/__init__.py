"""Wire formats of tool calls: one pure module each."""

from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.parsers.base import ParsedAction, Parser
from agent_envs.parsers.hermes import HermesParser
from agent_envs.parsers.react import ReActParser
from agent_envs.parsers.search_r1 import SearchR1Parser

__all__ = ["HermesParser", "ParsedAction", "Parser", "ReActParser", "SearchR1Parser", "get_parser"]

_PARSERS: dict[str, type[Parser]] = {"hermes": HermesParser, "react": ReActParser, "search_r1": SearchR1Parser}


def get_parser(name: str) -> Parser:
    """The parser of a wire format by name.

    Raises:
        ConfigError: There is no such format.
    """
    if name not in _PARSERS:
        raise ConfigError(f"unknown tool-call format {name!r}.{did_you_mean(name, _PARSERS)}")
    return _PARSERS[name]()
