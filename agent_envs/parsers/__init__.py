"""Parsers of the wire formats in which models write tool calls, one module each."""

from collections.abc import Callable, Sequence

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.messages import ToolSpec
from agent_envs.parsers.deepseek import DeepSeekParser
from agent_envs.parsers.fenced_python import FencedPythonParser
from agent_envs.parsers.glm import GlmParser
from agent_envs.parsers.harmony import HarmonyParser
from agent_envs.parsers.hermes import HermesParser
from agent_envs.parsers.lenient import HermesJsonParser, HermesPythonParser
from agent_envs.parsers.llama import LlamaParser
from agent_envs.parsers.mistral import MistralParser
from agent_envs.parsers.parser import ParsedAction, Parser
from agent_envs.parsers.plain_json import PlainJsonParser
from agent_envs.parsers.qwen_coder import QwenCoderParser
from agent_envs.parsers.react import ReActParser
from agent_envs.parsers.retool import ReToolParser
from agent_envs.parsers.search_r1 import SearchR1Parser

__all__ = [
    "PARSERS",
    "READINGS",
    "DeepSeekParser",
    "FencedPythonParser",
    "GlmParser",
    "HarmonyParser",
    "HermesParser",
    "LlamaParser",
    "MistralParser",
    "ParsedAction",
    "Parser",
    "PlainJsonParser",
    "QwenCoderParser",
    "ReActParser",
    "ReToolParser",
    "SearchR1Parser",
    "get_parser",
]


def __dir__() -> list[str]:
    return __all__


PARSERS: dict[str, Callable[..., Parser]] = {
    parser.name: parser
    for parser in (
        DeepSeekParser,
        FencedPythonParser,
        GlmParser,
        HarmonyParser,
        HermesParser,
        LlamaParser,
        MistralParser,
        PlainJsonParser,
        QwenCoderParser,
        ReActParser,
        ReToolParser,
        SearchR1Parser,
    )
}
"""The wire formats by name."""

READINGS: dict[str, Callable[..., Parser]] = {kind.name: kind for kind in (HermesJsonParser, HermesPythonParser)}
"""Other ways to read a wire format, by name: released recipes use them."""

# Formats that can only write these calls: the tool and its one argument.
_FIXED = {
    "fenced_python": {"python": "code"},
    "retool": {"python": "code"},
    "react": {"search": "entity", "lookup": "keyword"},
    "search_r1": {"search": "query"},
}


def get_parser(name: str, tools: Sequence[ToolSpec] | None = None) -> Parser:
    """Return the parser of a wire format.

    Args:
        name: One of ``PARSERS`` or ``READINGS``.
        tools: The available tools: some formats read values by the types in the tools' schemas.

    Raises:
        ConfigError: There is no such format, or it cannot write calls of one of the tools.
    """
    checks.choice("parser", name, PARSERS | READINGS)
    for function in [tool["function"] for tool in tools or () if name in _FIXED]:
        arguments = list(function["parameters"].get("properties", {}))
        if arguments != [_FIXED[name].get(function["name"])]:
            forms = " and ".join(f"{tool}({argument})" for tool, argument in _FIXED[name].items())
            raise ConfigError(
                f"the tool-call format {name!r} can only write {forms}, and the tools include "
                f"{function['name']}({', '.join(arguments)}); use another, such as 'hermes'"
            )
    return PARSERS[name](tools) if name in ("glm", "qwen_coder") else (PARSERS | READINGS)[name]()
