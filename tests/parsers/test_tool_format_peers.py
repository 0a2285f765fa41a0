"""What docs/tool_formats.md says of other packages' parsers is so, in the versions that are pinned.

Behaviours pinned here:
1. verl's parsers read the real calls that ours write, and give the same names and arguments.
2. The table's names of formats are verl's.
"""

import asyncio
import json
import re

import pytest

from agent_envs.messages import ToolCall
from agent_envs.parsers import get_parser

VERL = {"hermes": "hermes", "harmony": "gpt-oss", "qwen_coder": "qwen3_coder", "glm": "glm"}
START = "<|start|>assistant"  # of which verl's gpt-oss parser wants to see the one in the prompt too


class Decoded:
    """A tokenizer whose token ids are the text."""

    pad_token = "<|pad|>"

    def decode(self, ids, skip_special_tokens=False):
        return ids


def _with_verl(name, text, specs=()):
    tool_parser = pytest.importorskip("verl.experimental.agent_loop.tool_parser")
    from verl.tools.schemas import OpenAIFunctionToolSchema

    parser = tool_parser.ToolParser.get_tool_parser(VERL[name], Decoded())
    schemas = [OpenAIFunctionToolSchema.model_validate(spec) for spec in specs]
    text = START + text if name == "harmony" else text
    _, calls = asyncio.run(parser.extract_tool_calls(text, schemas))
    return [(call.name, json.loads(call.arguments)) for call in calls]


def _spec(name, arguments):
    properties = {key: {"type": "string", "description": ""} for key in arguments}
    parameters = {"type": "object", "properties": properties, "required": []}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


@pytest.fixture(scope="module")
def real_calls(data_dir):
    lines = (data_dir / "toolcalls" / "openai_tool_calls_300.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[::2]]
    return [ToolCall(row["name"], json.loads(row["arguments"])) for row in rows]


@pytest.mark.parametrize("name", VERL)
def test_verl_reads_the_real_calls_that_are_written_here(name, real_calls):
    read = 0
    for call in real_calls:
        if name in ("qwen_coder", "glm") and not all(
            isinstance(v, str) and v == v.strip() and v and v.lower() != "null" for v in call.arguments.values()
        ):
            continue  # both are typed by schemas, verl's in another way
        specs = [_spec(call.name, call.arguments)]
        calls = _with_verl(name, get_parser(name, specs).format(call), specs)
        # verl's reader of GLM's takes a text such as 5 for a number whatever the schema says
        assert calls[0][0] == call.name and (name == "glm" or calls == [(call.name, call.arguments)])
        read += 1
    assert read > 50


def test_the_tables_names_are_verls(root):
    tool_parser = pytest.importorskip("verl.experimental.agent_loop.tool_parser")
    text = (root / "docs" / "tool_formats.md").read_text(encoding="utf-8")
    table = text[text.index("| here | verl |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row[1])}
    assert named == set(tool_parser.ToolParser._registry)
    assert {
        re.findall(r"`(\w+)`", row[0])[0]: re.findall(r"`([\w-]+)`", row[1])[0] for row in rows if row[0] and row[1]
    } == VERL
