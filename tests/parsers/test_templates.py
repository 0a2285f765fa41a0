"""What a model family's chat template writes is read as the same calls, and `format` writes what the template writes.

The templates in `templates/` (FORMAT.FAMILY.jinja) follow the published rules of how a family writes an assistant's
turn with calls; where a family's own template takes one call a turn, they add what its format says about several.

1. A call with a value of any JSON type, with text before it and several calls in a turn: name, arguments, types and
   text are the same. So they are of what `format` writes.
2. An argument that may be null or a value is the value.
3. `format` writes the template's text.
"""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from agent_envs.messages import ToolCall, ToolSpec
from agent_envs.parsers import PARSERS, get_parser

jinja2 = pytest.importorskip("jinja2")

FOLDER = Path(__file__).with_name("templates")
TEMPLATES = sorted(path.stem for path in FOLDER.glob("*.jinja"))
ONE_STRING = {"react": ("search", "entity"), "search_r1": ("search", "query"), "fenced_python": ("python", "code")}
ONE_STRING["retool"] = ("python", "code")
GENERAL = [name for name in TEMPLATES if name.partition(".")[0] not in ONE_STRING]
# Families whose template writes as `format` does; the others add ids, spaces or channels that need not be there.
WRITTEN = ("hermes.qwen3", "qwen_coder.qwen3_coder", "llama.llama_3_1", "deepseek.v3_1")

STRINGS = [
    "", " ", "plain", "5", "-0.5", "true", "True", "None", "null", "NaN", "[1, 2]", '{"a": 1}', '"quoted"', "it's",
    "back\\slash \\n \\u0041", "two\nlines\n\nand\ttabs", "\n\nwithin breaks\n\n", "  within spaces  ", "\r\n",
    "\x00\x1f\x7f", "é中文😀 \u2028\u00a0\u202e", "<b>a &amp; b</b>", "a < b > c", "what is </think>?", "]}", "[/INST]",
    "```", "; {", "{{ x }} {% y %}",
]  # fmt: skip
NUMBERS = [0, 1, -7, 2**53 + 1, 10**30, 0.0, -0.0, 0.5, 3.0, -1e-9, 1e16, 1.7976931348623157e308, 5e-324]
NESTED = [
    [], {}, [[]], [{}], {"a": {}}, [1, "1", True, None, 0.5], {"a": [{"b": None, "c": [True, "x\ny"]}], "é": "中"},
    [[[[["deep"]]]]], {"": ""}, {"name": "add", "arguments": {"a": 1}}, ["<", "</tool_call>", "\u2028"],
]  # fmt: skip
VALUES: list[Any] = [*STRINGS, *NUMBERS, True, False, None, *NESTED]
KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


@functools.cache
def template(name: str) -> Any:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)  # as transformers has it
    return environment.from_string((FOLDER / f"{name}.jinja").read_text(encoding="utf-8"))


def render(name: str, content: str, *calls: ToolCall) -> str:
    return template(name).render(content=content, calls=[{"name": c.name, "arguments": c.arguments} for c in calls])


def spec(values: list[Any], *, nullable: bool = False) -> ToolSpec:
    kinds = [KINDS.get(type(value), "null") for value in values]
    types = [{"anyOf": [{"type": kind}, {"type": "null"}]} if nullable else {"type": kind} for kind in kinds]
    parameters = {"type": "object", "properties": {f"a_{i}": schema for i, schema in enumerate(types)}}
    return {"type": "function", "function": {"name": "do_it", "description": "", "parameters": parameters}}


def read(name: str, text: str, tool: ToolSpec) -> tuple[str, str]:
    """Return the text beside the calls, and the calls as JSON, which tells 1 from 1.0 and true."""
    parsed = get_parser(name.partition(".")[0], [tool]).parse(text)
    assert all(isinstance(call, ToolCall) for call in parsed.calls), parsed.calls
    return parsed.text, json.dumps([[call.name, call.arguments] for call in parsed.calls])  # type: ignore[union-attr]


def test_every_format_has_a_template():
    assert {name.partition(".")[0] for name in TEMPLATES} == set(PARSERS)


@pytest.mark.parametrize("content", ["", "I will look.\nThen I act."])
@pytest.mark.parametrize("name", GENERAL)
def test_every_value_is_read_as_it_was_written(name, content):
    for value in VALUES:
        tool, call = spec([value, 1]), ToolCall("do_it", {"a_0": value, "a_1": 1})
        for calls in ([call], [call, ToolCall("do_it", {}), call]):
            expected = json.dumps([[c.name, c.arguments] for c in calls])
            assert read(name, render(name, content, *calls), tool) == (content, expected), value
    call = ToolCall("do_it", {f"a_{i}": value for i, value in enumerate(VALUES)})
    assert read(name, render(name, content, call), spec(VALUES))[1] == json.dumps([["do_it", call.arguments]])


@pytest.mark.parametrize("name", sorted({name.partition(".")[0] for name in GENERAL}))
def test_every_value_is_read_as_format_writes_it(name):
    for value in (*VALUES, "x[/THINK]", "x[TOOL_CALLS]"):
        call = ToolCall("do_it", {"a_0": value, "a_1": 1})
        text = ("; " if name == "llama" else "\n").join([get_parser(name).format(call)] * 2)
        assert read(name, text, spec([value, 1])) == ("", json.dumps([["do_it", call.arguments]] * 2)), value


@pytest.mark.parametrize("name", GENERAL)
def test_a_value_that_may_be_null_is_read_as_it_was_written(name):
    coder = name.startswith("qwen_coder")
    words = ("None", "null") if coder else ("null",) if name.startswith("glm") else ()  # which may be null or a string
    values = [value for value in VALUES if value not in words]
    call = ToolCall("do_it", {f"a_{i}": value for i, value in enumerate(values)})
    expected = ("", json.dumps([["do_it", call.arguments]]))
    assert read(name, render(name, "", call), spec(values, nullable=True)) == expected
    nothing = ToolCall("do_it", {f"a_{i}": None for i in range(len(values))})
    expected = ("", json.dumps([["do_it", nothing.arguments]]))
    assert read(name, render(name, "", nothing), spec(values, nullable=True)) == expected


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_is_written_as_the_template_writes_it(name):
    call = ToolCall("do_it", {f"a_{i}": value for i, value in enumerate(VALUES) if "<" not in json.dumps(value)})
    ends = ("<|eot_id|>", "<｜end▁of▁sentence｜>")
    rendered = render(name, "", call)
    for end in ends:
        rendered = rendered.removesuffix(end)
    assert get_parser(name.partition(".")[0]).format(call) == rendered


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name not in GENERAL])
def test_formats_of_one_string(name):
    tool, argument = ONE_STRING[name.partition(".")[0]]
    parser = get_parser(name.partition(".")[0])
    for value in STRINGS:
        if name.startswith("react"):  # whose commands are one line
            value = " ".join(value.split())
        if value == "```" or (name.startswith(("search_r1", "retool")) and "</think>" in value):
            continue  # which end the block and the reasoning
        (call,) = parser.parse(render(name, "I look.", ToolCall(tool, {argument: value}))).calls
        assert isinstance(call, ToolCall)
        wanted = value + "\n" if name.startswith("fenced") else value.strip()
        wanted = value.strip("\n") if name.startswith("retool") else wanted
        assert (call.name, call.arguments) == (tool, {argument: wanted})
