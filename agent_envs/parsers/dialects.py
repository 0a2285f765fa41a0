"""How calls begin in wire formats, those that no parser here reads included: such a text is no final answer.

Formats: the models' chat templates and model cards.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agent_envs.messages import ParseFailure
from agent_envs.parsers.parser import ParsedAction, Parser

_OPENINGS = {
    r"<tool_call>": "Hermes, Qwen or GLM",
    r"<function=": "Qwen3-Coder",
    r"\[TOOL_CALLS\]": "Mistral",
    r"<\|python_tag\|>": "Llama",
    r"to=functions\.": "Harmony",
    r"<｜tool▁call": "DeepSeek V3",
    r"<[|｜]DSML[|｜]": "DeepSeek V3.2",
    r"<\|tool_call(?:s_section)?_begin\|>": "Kimi K2",
    r"<minimax:tool_call>|<invoke name=": "MiniMax M2",
    r"<tool_calls>": "MiniMax M1, Hunyuan or Jamba",
    r"<function_calls>": "Olmo 3",
    r"<seed:tool_call>": "Seed-OSS",
    r"<longcat_tool_call>": "LongCat",
    r"<steptml:invoke|<｜tool_call": "Step-3",
    r"<\|tool_call>": "Gemma 4",
    r"```tool_code": "Gemma 3",
    r"<start_function_call>": "FunctionGemma",
    r"<\|tool_call\|>": "Granite or Phi-4",
    r"functools\[": "Phi-4-mini",
    r"<\|tool_call_start\|>": "LFM2",
    r"<\|tools_prefix\|>": "Apertus",
    r"<\|action_start\|>": "InternLM",
    r"<\|START_ACTION\|>": "Command",
    r"<TOOLCALL>": "Nemotron",
    r"\[TOOL_REQUEST\]": "LM Studio",
    r'\{\s*"name"\s*:\s*"[^"\n]*"\s*,\s*"(?:arguments|parameters)"\s*:': "plain JSON",
}
_OPENING = re.compile("|".join(_OPENINGS))  # without groups, which make the search ten times as long


def without_foreign_calls(parsed: ParsedAction, parser: Parser) -> ParsedAction:
    """Return what a parser read, with a failure in the place of an answer that begins a call in another format."""
    mark = None if parsed.calls else _OPENING.search(parsed.text)
    if mark is None:
        return parsed
    form = next(form for opening, form in _OPENINGS.items() if re.match(opening, mark[0]))
    problem = f"a tool call in the form of {form} is not read here: expected {parser.describe()}"
    failure = ParseFailure(problem, parsed.text[mark.start() :])
    return replace(parsed, text=parsed.text[: mark.start()].strip(), calls=(failure,))
