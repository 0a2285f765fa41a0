"""Wire formats of tool calls: every format reads what it writes, says what is wrong with the rest, and never raises.

Behaviours pinned here:
1. What a model of each family writes is read, reasoning and answer apart from the calls.
2. ``parse(format(call))`` is the call, for the 300 real calls (of values of every kind: test_templates.py).
3. A malformed call is a failure with a reason, beside the calls that could be read.
4. Reasoning is told apart in the same way in every format, and a tag within a call's string is part of the string.
5. JSON has the same maximum depth in every release of Python.
"""

import json
from typing import Any

import pytest

from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.parsers import PARSERS, Parser, get_parser
from agent_envs.parsers.json_calls import MAX_DEPTH, load_json

GENERAL = sorted(set(PARSERS) - {"react", "retool", "search_r1", "fenced_python"})
BEGIN, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


def _spec(name: str, arguments: dict[str, Any]) -> ToolSpec:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    properties = {key: {"type": kinds.get(type(value), "null")} for key, value in arguments.items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def _parser(name: str, *calls: ToolCall) -> Parser:
    return get_parser(name, [_spec(call.name, call.arguments) for call in calls])


def _read(parser: Parser, text: str) -> list[tuple[str, dict[str, Any]]]:
    calls = parser.parse(text).calls
    assert all(isinstance(call, ToolCall) for call in calls), calls
    return [(call.name, call.arguments) for call in calls]  # type: ignore[union-attr]


ADD = [("add", {"a": 1, "b": "x y"})]
BODY = '{"a": 1, "b": "x y"}'


@pytest.mark.parametrize(
    ("name", "text", "calls", "rest", "reasoning"),
    [
        ("llama", f'{{"name": "add", "parameters": {BODY}}}', ADD, "", ""),
        ("llama", f'<|python_tag|>{{"name": "add", "arguments": {BODY}}}<|eom_id|>', ADD, "", ""),
        ("llama", f'{{"name": "add", "parameters": {BODY}}}; {{"name": "add", "parameters": {BODY}}}', ADD * 2, "", ""),
        ("llama", f'{{"name": "add", "parameters": {BODY}}} <|python_tag|> {{"name": "add", "parameters": {BODY}}}',
         ADD * 2, "", ""),
        ("llama", "It is 4.<|eot_id|>", [], "It is 4.", ""),
        ("llama", f'I add.\n{{"type": "function", "name": "add", "parameters": {BODY}}}', ADD, "I add.", ""),
        ("llama", f'I add. {{"parameters": {BODY}, "name": "add"}}', ADD, "I add.", ""),
        ("llama", f'So: {{"type": "function", "function": {{"name": "add", "arguments": {BODY}}}}}', ADD,
         'So: {"type": "function", "function": }', ""),
        ("llama", 'The set {"x"} and {"name": "Bob"} it is.', [], 'The set {"x"} and {"name": "Bob"} it is.', ""),
        ("llama", f'I add. {{"name": "add", "parameters": {BODY}}}', ADD, "I add.", ""),
        ("llama", f'{{"name": "add", "parameters": {BODY}}} and\n{{"name": "add", "parameters": {BODY}}}; then more',
         ADD * 2, "and\nthen more", ""),
        ("mistral", f'Wait. [TOOL_CALLS] [{{"name": "add", "arguments": {BODY}}}]</s>', ADD, "Wait.", ""),
        ("mistral", f"[TOOL_CALLS]add[ARGS]{BODY}[TOOL_CALLS]add[CALL_ID]a1b2c3d4e[ARGS]{BODY}</s>", ADD * 2, "", ""),
        ("mistral", f'[TOOL_CALLS][{{"name": "add", "arguments": {BODY}}}] and [TOOL_CALLS]add[ARGS]{BODY} more</s>',
         ADD * 2, "and more", ""),
        ("mistral", f"[TOOL_CALLS]add{BODY}[TOOL_CALLS]add {BODY}</s>", ADD * 2, "", ""),
        ("mistral", "[TOOL_CALLS]now[ARGS][TOOL_CALLS]a/b.c-d[ARGS] {}", [("now", {}), ("a/b.c-d", {})], "", ""),
        ("mistral", '[TOOL_CALLS][{"name": "now", "arguments": ""}, {"name": "now", "arguments": null}]',
         [("now", {})] * 2, "", ""),
        ("mistral", f"[THINK]hm[/THINK][TOOL_CALLS]add[ARGS]{BODY}", ADD, "", "hm"),
        ("qwen_coder", "<think>hm</think>I add.<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
         "<parameter=b>\nx y\n</parameter>\n</function>\n</tool_call>", ADD, "I add.", "hm"),
        ("qwen_coder", "<function=add></function>", [("add", {})], "", ""),
        ("qwen_coder", "<function=add><parameter=a>\nTrue\n</parameter><parameter=b>\nNone\n</parameter></function>",
         [("add", {"a": True, "b": None})], "", ""),
        ("qwen_coder", "<function=run>\n<parameter=code>\nif a:\n    b()\n\n</parameter>\n</function>",
         [("run", {"code": "if a:\n    b()\n"})], "", ""),
        ("glm", "I add.<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
         "<arg_value>x y</arg_value>\n</tool_call>", ADD, "I add.", ""),
        ("glm", "<tool_call>add<arg_key>a</arg_key><arg_value>true</arg_value>"
         "<arg_key>b</arg_key><arg_value>None</arg_value></tool_call>", [("add", {"a": True, "b": "None"})], "", ""),
        ("glm", "<tool_call>now</tool_call><tool_call>now\n</tool_call>", [("now", {})] * 2, "", ""),
        ("deepseek", f"Ok.<｜tool▁calls▁begin｜>{BEGIN}add{SEPARATOR}{BODY}{END}{BEGIN}add{SEPARATOR}{BODY}{END}"
         "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>", ADD * 2, "Ok.", ""),
        ("deepseek", f"<think>\nhm\n</think>\n\n<｜tool▁calls▁begin｜>{BEGIN}function{SEPARATOR}add\n"
         f"```json\n{BODY}\n```{END}<｜tool▁calls▁end｜>", ADD, "", "hm"),
        ("deepseek", f"{BEGIN}add{SEPARATOR}{BODY}{END}<｜tool▁calls▁end｜> then more", ADD, "then more", ""),
        ("harmony", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.add "
         f"<|constrain|>json<|message|>{BODY}<|call|>", ADD, "", "hm"),
        ("harmony", f"<|start|>assistant to=functions.add<|channel|>commentary<|message|>{BODY}<|call|>", ADD, "", ""),
        ("harmony", "<|channel|>commentary to=functions.now<|message|><|call|>", [("now", {})], "", ""),
        ("deepseek", f"{BEGIN}now{SEPARATOR}{END}{BEGIN}now{SEPARATOR} {{}}{END}", [("now", {})] * 2, "", ""),
        ("hermes", '<tool_call>{"name": "now", "arguments": " "}</tool_call>', [("now", {})], "", ""),
        ("hermes", '<tool_call>{"name": "say", "arguments": {"a\\ud800": ["\\uDC00", "\\ud83d\\ude00"]}}</tool_call>',
         [("say", {"a\ufffd": ["\ufffd", "😀"]})], "", ""),
        ("harmony", "<|channel|>final<|message|>It is 4.<|return|>", [], "It is 4.", ""),
        ("json", f'Sure:\n```json\n{{"name": "add", "arguments": {BODY}}}\n```\nDone.', ADD, "Sure:\nDone.", ""),
        ("json", f'[{{"name": "add", "arguments": {BODY}}}, {{"name": "add", "parameters": {BODY}}}]', ADD * 2, "", ""),
        ("json", '{"answer": {"name": 3}}', [], '{"answer": {"name": 3}}', ""),
        ("json", f'{{"id": "c1", "name": "add", "arguments": {BODY}}}', ADD, "", ""),
        ("json", f'{{"thought": "{{add}}", "arguments": {BODY}, "name": "add"}}', ADD, "", ""),
        ("json", f'[{{"id": 1, "name": "add", "arguments": {BODY}}}]', ADD, "", ""),
        ("json", '[{"model": "x", "parameters": 7}]', [], '[{"model": "x", "parameters": 7}]', ""),
        ("fenced_python", "I run.\n```python\nprint(1)\n```\n```output\n1\n```", [("python", {"code": "print(1)\n"})],
         "I run.", ""),
        ("fenced_python", "````py\n```\n````", [("python", {"code": "```\n"})], "", ""),
    ],
)  # fmt: skip
def test_what_models_write_is_read(name, text, calls, rest, reasoning):
    parser = get_parser(name)
    assert _read(parser, text) == calls
    parsed = parser.parse(text)
    assert (parsed.text, parsed.reasoning) == (rest, reasoning)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("llama", '{"name": "add", "parameters": {"a": 1}', "not valid JSON"),
        ("llama", '<|python_tag|>add(1)', "expected {"),
        ("llama", '{"name": "add"}; {add} and more', "not valid JSON"),
        ("llama", '{"name": "add", "parameters": {}} and <|python_tag|>add(1)', "expected {"),
        ("llama", '{"parameters": {}}', "has no name"),
        ("mistral", "[TOOL_CALLS]", "not valid JSON"),
        ("mistral", 'add[ARGS]{"a": 1}', "[ARGS] without the beginning of a call"),
        ("glm", "add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", "</tool_call> without the beginning"),
        ("qwen_coder", "add>\n<parameter=a>\n1\n</parameter>\n</function>", "</function> without the beginning"),
        ("deepseek", f"add{SEPARATOR}{{}}{END}", "without the beginning of a call"),
        ("harmony", 'add<|message|>{"a": 1}<|call|>', "<|call|> ends a message to no tool"),
        ("harmony", '{"a": 1}<|call|>', "<|call|> without the beginning of a call"),
        ("mistral", "[TOOL_CALLS][]", "array of tool calls is empty"),
        ("mistral", "[TOOL_CALLS]add[ARGS][1]", "must be a JSON object, got an array"),
        ("mistral", "[TOOL_CALLS]add[ARGS]{}add[ARGS]{}", "something follows"),
        ("qwen_coder", "<tool_call>\n<function=add>\n<parameter=a>\n1", "<parameter=a> is not closed"),
        ("qwen_coder", "<tool_call>\n<function=add>\n", "<function=add> is not closed"),
        ("qwen_coder", "<tool_call>add</tool_call>", "expected <tool_call><function=NAME>"),
        ("glm", "<tool_call>add<arg_key>a</arg_key><arg_value>1", "<arg_value> is not closed"),
        ("glm", "<tool_call>add", "<tool_call> is not closed"),
        ("glm", "<tool_call></tool_call>", "has no name"),
        ("deepseek", f"<｜tool▁calls▁begin｜>{BEGIN}add{END}", "expected the tool's name"),
        ("deepseek", f"{BEGIN}add{SEPARATOR}{{", "not valid JSON"),
        ("deepseek", "<｜tool▁calls▁begin｜>", "expected <"),
        ("harmony", "<|channel|>commentary to=functions.add", "no <|message|>"),
        ("harmony", "<|channel|>commentary to=functions.add<|message|>{a}<|call|>", "not valid JSON"),
        ("json", '{"name": "add", "arguments": {"a": }}', "not valid JSON"),
        ("json", '{"name": "add", "arguments": 3}', "must be a JSON object, got a number"),
        ("fenced_python", "```python\nprint(1)", "code block is not closed"),
        ("json", 'So {"id": 1, "name": "add", "arguments": {"a": 1', "not valid JSON"),
        ("json", '{"tool": "add", "arguments": {"a": 1}}', "has no name"),
        ("llama", 'So {"type": "function", "name": "add", "parameters": {"a": }}', "not valid JSON"),
        ("mistral", "[TOOL_CALLS]add", "not valid JSON"),
        ("mistral", '[TOOL_CALLS]add{"a": 1}add{"a": 2}', "something follows"),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', "NaN is no finite number"),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1e999}}</tool_call>', "1e999 is no finite number"),
    ],
)  # fmt: skip
def test_malformed_calls_say_what_is_wrong(name, text, error):
    calls = get_parser(name).parse(text).calls
    (failure,) = [call for call in calls if isinstance(call, ParseFailure)]
    assert error in failure.error


FOREIGN = {  # how calls begin, and which formats find something of their own in it
    "DeepSeek V3.2": ('<｜DSML｜function_calls>\n<｜DSML｜invoke name="add">', ()),
    "Kimi K2": ("<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}", ()),
    "MiniMax M2": ('<minimax:tool_call>\n<invoke name="add"><parameter name="a">1</parameter>', ("qwen_coder",)),
    "Seed-OSS": ("<seed:tool_call>\n<function=add>", ("qwen_coder",)),
    "Harmony": ("<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}<|call|>", ("harmony",)),
    "Hermes, Qwen or GLM": ('<tool_call>{"name": "add", "arguments": {}}</tool_call>',
                            ("glm", "hermes", "json", "llama", "qwen_coder")),
    "Mistral": ('[TOOL_CALLS][{"name": "add", "arguments": {}}]', ("json", "llama", "mistral")),
    "Gemma 3": ("```tool_code\nadd(a=1)\n```", ()),
    "LM Studio": ('[TOOL_REQUEST]{"name": "add", "arguments": {}}[END_TOOL_REQUEST]', ("json", "llama")),
    "Phi-4-mini": ('functools[{"name": "add", "arguments": {}}]', ("json", "llama")),
    "plain JSON": ('{"name": "add", "parameters": {"a": 1}}', ("json", "llama")),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PARSERS))
@pytest.mark.parametrize("dialect", FOREIGN)
def test_a_call_in_another_format_is_no_answer(name, dialect):
    parser, (written, readers) = get_parser(name), FOREIGN[dialect]
    for text in (written, f"I add 1.\n{written}", f"<think>hm</think>\nI add.{written}"):
        (call,) = parser.parse(text).calls
        if name not in readers:
            assert isinstance(call, ParseFailure)
            if name not in ("react", "search_r1"):  # where everything but an answer in its form is a failure
                assert call.error.startswith(f"a tool call in the form of {dialect} is not read here: expected ")
    if name not in ("harmony", "react", "search_r1"):
        thought = parser.parse(f"<think>{written}</think>It is 4.")
        assert (thought.text, thought.calls) == ("It is 4.", ())


GOOD = {  # a call of `add` without arguments
    "deepseek": f"{BEGIN}add{SEPARATOR}{{}}{END}",
    "glm": "<tool_call>add</tool_call>",
    "harmony": "<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{}<|call|>",
    "qwen_coder": "<tool_call><function=add></function></tool_call>",
    "hermes": '<tool_call>{"name": "add"}</tool_call>',
    "mistral": "[TOOL_CALLS]add[ARGS]{}",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen_coder", "<function=say><parameter=a>1"),
        ("qwen_coder", "<function=say>\n<parameter=a>\n1\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>"),
        ("qwen_coder", "<function=say>\n<parameter=a>\n1\n</function>\n</tool_call>"),
        ("qwen_coder", "<function=say>\n<parameter=a>\n1\n</parameter>\n</tool_call>"),
        ("glm", "<tool_call>say<arg_key>a</arg_key><arg_value>1"),
        (
            "glm",
            "<tool_call>say<arg_key>a</arg_key><arg_value>1\n<arg_key>b</arg_key><arg_value>2</arg_value></tool_call>",
        ),
        ("glm", "<tool_call>say<arg_key>a</arg_key><arg_value>1</tool_call>"),
        ("glm", "<tool_call>say<arg_key>a</arg_key><arg_value>1</arg_value>"),
        ("glm", "<tool_call>say<arg_key>a<arg_value>1</arg_value>"),
        ("deepseek", f'{BEGIN}say{SEPARATOR}{{"a": "1'),
        ("deepseek", f'{BEGIN}say{SEPARATOR}{{"a": 1}}'),
        ("deepseek", f"{BEGIN}say"),
        ("harmony", '<|channel|>commentary to=functions.say<|message|>{"a": 1}'),
        ("harmony", '<|channel|>commentary to=functions.say<|message|>{"a": "'),
        ("hermes", '<tool_call>{"name": "say", "arguments": {"a": 1}}'),
        ("hermes", '<tool_call>{"name": "say", "arguments": {"a": "'),
        ("mistral", '[TOOL_CALLS]say[ARGS]{"a": "'),
    ],
)
def test_what_is_not_closed_takes_no_part_of_the_next_call(name, text):
    failure, call = get_parser(name).parse(text + GOOD[name]).calls
    assert isinstance(failure, ParseFailure) and failure.raw in text
    assert isinstance(call, ToolCall) and (call.name, call.arguments) == ("add", {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fenced_python", "```python\na = 1\n```python\na = 2\n```"),
        ("search_r1", "<search>one <search>two</search>"),
        ("search_r1", "<search>one <answer>two</answer></search>"),
        ("harmony", "<|channel|>final<|message|>4<|channel|>commentary to=functions.add<|message|>{}"),
    ],
)
def test_what_is_not_closed_is_reported(name, text):
    (failure,) = get_parser(name).parse(text).calls
    assert isinstance(failure, ParseFailure) and "not closed" in failure.error


TYPED = [  # schema, what is written, and what it is, for glm too unless that is another
    ({"type": "boolean"}, "True", True, "True"),
    ({"type": "boolean"}, "false", False),
    ({"type": "boolean"}, "FALSE", False, "FALSE"),
    ({"type": "string"}, "True", "True"),
    ({"type": "string"}, "None", "None"),
    ({"type": ["string", "null"]}, "none", None, "none"),
    ({"type": ["string", "null"]}, "null", None),
    ({"type": ["string", "null"]}, "5", "5"),
    ({"type": ["string", "null"]}, '"5"', '"5"'),
    ({"type": ["integer", "null"]}, "None", None, "None"),
    ({"type": "string"}, "null", "null"),
    ({"type": "string"}, "NULL", "NULL"),
    ({"type": "string"}, "007", "007"),
    ({"type": "string"}, "yes", "yes"),
    ({"type": ["string", "null"]}, "NULL", None, "NULL"),
    ({"type": ["string", "null"]}, "007", "007"),
    ({"type": "integer"}, "007", 7),  # as Qwen3-Coder's own parser, which takes what Python's int and float do
    ({"type": ["integer", "null"]}, "007", 7),
    ({"type": ["integer", "string"]}, "007", "007"),
    ({"type": "integer"}, "+5", 5),
    ({"type": "integer"}, "5.5", 5.5),  # the tool's schema refuses it
    ({"type": "number"}, "007", 7.0),
    ({"type": "number"}, ".5", 0.5),
    ({"type": "number"}, "nan", "nan"),
    ({"type": "number"}, "1e999", "1e999"),
    ({"type": "boolean"}, "yes", "yes"),  # that parser takes it for False; here the tool's schema refuses it
    ({"type": "boolean"}, "1", 1),
    ({}, "007", "007"),
    ({}, "yes", "yes"),
    ({}, "NULL", None, "NULL"),
    ({"$ref": "#/$defs/Name"}, "5", "5"),
    ({"allOf": [{"$ref": "#/$defs/Name"}]}, "5", "5"),
    ({"anyOf": [{"$ref": "#/$defs/Name"}, {"type": "null"}]}, "5", "5"),
    ({"$ref": "#/$defs/Loop"}, "5", 5),
    ({"type": "integer", "nullable": True}, "NULL", None, "NULL"),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "12", "12"),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "12", 12),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "1.5", "1.5"),
    ({"enum": ["1", "2"]}, "1", "1"),
    ({"enum": [1, None]}, "None", None, "None"),
    ({"const": "true"}, "true", "true"),
    ({}, "True", True, "True"),
    ({}, "TRUE", "TRUE"),  # where nothing is known, only what the template writes
    ({}, "none", "none"),
    ({"$ref": "#/$defs/Place"}, "[1]", [1]),
    (True, "1", 1),
    ({"type": "number"}, "1e3", 1000.0),
    ({"type": "array"}, "[True]", "[True]"),  # no JSON: the tool's schema refuses it
]


@pytest.mark.parametrize(
    ("schema", "written", "value", "glm"), [row if len(row) == 4 else (*row, row[2]) for row in TYPED]
)
def test_the_schema_says_what_a_value_without_quotes_is(schema, written, value, glm):
    definitions = {"Name": {"enum": ["1", "a"]}, "Loop": {"$ref": "#/$defs/Loop"}}
    parameters = {"type": "object", "properties": {"a": schema}, "$defs": definitions}
    tool: ToolSpec = {"type": "function", "function": {"name": "say", "description": "", "parameters": parameters}}
    text = f"<function=say>\n<parameter=a>\n{written}\n</parameter>\n</function>"
    assert repr(_read(get_parser("qwen_coder", [tool]), text)) == repr([("say", {"a": value})])
    text = f"<tool_call>say\n<arg_key>a</arg_key>\n<arg_value>{written}</arg_value>\n</tool_call>"
    assert repr(_read(get_parser("glm", [tool]), text)) == repr([("say", {"a": glm})])


@pytest.mark.parametrize("name", GENERAL)
def test_real_calls_survive(name, data_dir):
    lines = (data_dir / "toolcalls" / "openai_tool_calls_300.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 300
    for line in lines:
        row = json.loads(line)
        call = ToolCall(row["name"], json.loads(row["arguments"]))
        parser = _parser(name, call)
        assert _read(parser, parser.format(call)) == [(call.name, call.arguments)]
        assert parser.format(parser.parse(parser.format(call)).calls[0]) == parser.format(call)  # type: ignore[arg-type]


def test_the_examples_of_hermes_are_read(data_dir):
    text = (data_dir / "toolcalls" / "hermes_few_shot.json").read_text(encoding="utf-8")
    for row in json.loads(text):
        calls = get_parser("hermes").parse(row["example"].partition("ASSISTANT:")[2]).calls
        assert calls and all(isinstance(call, ToolCall) for call in calls)


# The call of each format that holds `%s` unescaped, as models write it.
WRITTEN = {
    "deepseek": f'<｜tool▁calls▁begin｜>{BEGIN}search{SEPARATOR}{{"query": "%s"}}{END}<｜tool▁calls▁end｜>',
    "fenced_python": "```python\n%s\n```\n",
    "glm": "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
    "hermes": '<tool_call>{"name": "search", "arguments": {"query": "%s"}}</tool_call>',
    "json": '{"name": "search", "arguments": {"query": "%s"}}',
    "llama": '{"name": "search", "parameters": {"query": "%s"}}',
    "mistral": '[TOOL_CALLS][{"name": "search", "arguments": {"query": "%s"}}]',
    "qwen_coder": "<tool_call>\n<function=search>\n<parameter=query>\n%s\n</parameter>\n</function>\n</tool_call>",
    "react": "Search[%s]",
    "retool": "<code>\n%s\n</code>",
    "search_r1": "<search>%s</search>",
}


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_reasoning_is_no_call_and_a_call_is_no_reasoning(name):
    parser, written = get_parser(name), WRITTEN[name]

    def values(text: str) -> list[str]:
        return [str(value).strip() for _, arguments in _read(parser, text) for value in arguments.values()]

    one, no, yes = written % "one", written % "no", written % "yes"
    for text in (
        yes,
        f"<think>hm</think>{yes}",
        f"hm</think>{yes}",  # the prompt began it
        f"<think>{no}</think>{yes}",
        f"{no}</think>{yes}",
        f"<think>a <think>b</think> {no}</think>{yes}",
        f"<think>{no} <think> {no}</think>{yes}",
        f"<think>a</think>b</think>{yes}",
        f"<think>a</think>\n<think>{no}</think>\n{yes}",
    ):
        assert values(text) == ["yes"], text
        assert "hm" not in parser.parse(text).text
    inner = "what is <think>this</think>?"
    assert values(f"<think>hm</think>{written % inner}") == values(written % inner) == [inner]
    assert values(f"<think>hm</think>{written % 'what is </think>?'}") == ["what is </think>?"]
    if name not in ("retool", "search_r1"):  # there a tag that was begun while thinking is none of a call
        assert values(written % "what is </think>?") == ["what is </think>?"]
    if name in ("deepseek", "glm", "hermes", "json", "mistral", "qwen_coder"):
        assert values(f"<think>a</think>{one}<think>{no}</think>{yes}") == ["one", "yes"]
        assert parser.parse(f"<think>a</think>{one}<think>b</think>{yes}").reasoning == "a\nb"
    else:  # one call in a text, or nothing between two
        assert "no" not in values(f"<think>a</think>{one}<think>{no}</think>\n" + ("" if name == "llama" else yes))


def test_json_is_nested_a_hundred_deep_at_most_in_every_release_of_python():
    for pair in ("[]", "{}"):
        inner = '"a":' if pair == "{}" else ""
        deepest = f"{pair[0]}{inner}" * (MAX_DEPTH - 1) + pair + pair[1] * (MAX_DEPTH - 1)
        assert json.dumps(load_json(deepest), separators=(",", ":")) == deepest
        for text in (f"{pair[0]}{inner}{deepest}{pair[1]}", pair[0] + inner + deepest, (pair[0] + inner) * 100_000):
            with pytest.raises(ValueError, match="nested too deeply"):
                load_json(text)
    for text in ('["' + "[{" * 200 + '\\"[[", 1]', "[" + "[]," * 200 + "{}]"):  # brackets, but not inside each other
        load_json(text)
    deep = '<tool_call>{"name": "f", "arguments": {"a": %s}}</tool_call>' % ("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    (call,) = get_parser("hermes").parse(deep).calls
    assert call.error == "the tool call is not valid JSON: nested too deeply"
