"""How calls begin in wire formats, those that no parser here reads included: such a text is no final answer.

Formats: the models' chat templates and model cards.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agent_envs.messages import ParseFailure
from agent_envs.parsers.parser import ParsedAction, Parser

__all__ = ["without_foreign_calls"]

_OPENINGS = {
    "<tool_call>": "Hermes, Qwen or GLM",
    "<function=": "Qwen3-Coder",
    "[TOOL_CALLS]": "Mistral",
    "<|python_tag|>": "Llama",
    "to=functions.": "Harmony",
    "<｜tool▁call": "DeepSeek V3",
    "<｜DSML｜": "DeepSeek V3.2",
    "<|DSML|": "DeepSeek V3.2",
    "<|tool_calls_section_begin|>": "Kimi K2",
    "<|tool_call_begin|>": "Kimi K2",
    "<minimax:tool_call>": "MiniMax M2",
    "<invoke name=": "MiniMax M2",
    "<tool_calls>": "MiniMax M1, Hunyuan or Jamba",
    "<function_calls>": "Olmo 3",
    "<seed:tool_call>": "Seed-OSS",
    "<longcat_tool_call>": "LongCat",
    "<steptml:invoke": "Step-3",
    "<｜tool_call": "Step-3",
    "<|tool_call>": "Gemma 4",
    "<start_function_call>": "FunctionGemma",
    "<|tool_call|>": "Granite or Phi-4",
    "<|tool_call_start|>": "LFM2",
    "<|tools_prefix|>": "Apertus",
    "<|action_start|>": "InternLM",
    "<|START_ACTION|>": "Command",
    "<TOOLCALL>": "Nemotron",
}
_OPENING = re.compile("|".join(map(re.escape, _OPENINGS)))


def without_foreign_calls(parsed: ParsedAction, parser: Parser) -> ParsedAction:
    """Return what a parser read, with a failure in the place of an answer that begins a call in another format."""
    found = None if parsed.calls else _OPENING.search(parsed.text)
    if found is None:
        return parsed
    problem = f"a tool call in the form of {_OPENINGS[found[0]]} is not read here: expected {parser.describe()}"
    failure = ParseFailure(problem, parsed.text[found.start() :])
    return replace(parsed, text=parsed.text[: found.start()].strip(), calls=(failure,))
