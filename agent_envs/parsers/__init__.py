"""Wire formats of tool calls: one pure module each."""

from collections.abc import Callable, Sequence

from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.messages import ToolSpec
from agent_envs.parsers.base import ParsedAction, Parser
from agent_envs.parsers.deepseek import DeepSeekParser
from agent_envs.parsers.fenced_python import FencedPythonParser
from agent_envs.parsers.glm import GlmParser
from agent_envs.parsers.harmony import HarmonyParser
from agent_envs.parsers.hermes import HermesParser
from agent_envs.parsers.llama import LlamaParser
from agent_envs.parsers.mistral import MistralParser
from agent_envs.parsers.plain_json import PlainJsonParser
from agent_envs.parsers.qwen_coder import QwenCoderParser
from agent_envs.parsers.react import ReActParser
from agent_envs.parsers.search_r1 import SearchR1Parser

__all__ = [
    "PARSERS",
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
    "SearchR1Parser",
    "get_parser",
]

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
        SearchR1Parser,
    )
}
"""The wire formats by name."""

_TYPED = ("glm", "qwen_coder")


def get_parser(name: str, tools: Sequence[ToolSpec] | None = None) -> Parser:
    """The parser of a wire format by name.

    Args:
        name: One of ``PARSERS``.
        tools: The tools on offer, for the formats whose values have the types that the tools' schemas say.

    Raises:
        ConfigError: There is no such format.
    """
    if name not in PARSERS:
        raise ConfigError(f"unknown tool-call format {name!r}.{did_you_mean(name, PARSERS)}")
    return PARSERS[name](tools) if name in _TYPED else PARSERS[name]()
