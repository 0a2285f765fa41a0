"""Hostile text into every parser: it raises nothing, reads in linear time, and reports what it cannot read.

1. Nesting that is too deep, numbers that are too large, NUL, unpaired surrogates and tags that are not closed, in a
   call of every format and in random mixtures of all of them.
2. Texts made to be read again and again: repeated beginnings, long names, long blanks, beginnings before endings. Four
   times the text takes about four times as long.
3. Schemas that are odd, and calls by the hundred thousand.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers import PARSERS, ParsedAction, get_parser
from agent_envs.parsers.detect import parse_recorded
from agent_envs.parsers.json_calls import MAX_CALLS
from agent_envs.parsers.reasoning import strip_reasoning

BEGIN, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
CALLS = {  # a call of each format, with a place for its arguments or its only one
    "deepseek": f"<｜tool▁calls▁begin｜>{BEGIN}add{SEPARATOR}%s{END}<｜tool▁calls▁end｜>",
    "fenced_python": "```python\n%s\n```\n",
    "glm": "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
    "harmony": "<|channel|>commentary to=functions.add <|constrain|>json<|message|>%s<|call|>",
    "hermes": '<tool_call>\n{"name": "add", "arguments": %s}\n</tool_call>',
    "json": '{"name": "add", "arguments": %s}',
    "llama": '{"name": "add", "parameters": %s}',
    "mistral": "[TOOL_CALLS]add[ARGS]%s",
    "qwen_coder": "<tool_call>\n<function=add>\n<parameter=a>\n%s\n</parameter>\n</function>\n</tool_call>",
    "react": "search[%s]",
    "retool": "<code>\n%s\n</code>",
    "search_r1": "<search>%s</search>",
}
ONE_CALL = {"fenced_python", "react", "retool", "search_r1"}  # a text makes one, of one plain string
DEEP = 20_000
VALUES = {
    "deep arrays": '{"a": ' + "[" * DEEP + "]" * DEEP + "}",
    "deep objects": '{"a": ' * DEEP + "1" + "}" * DEEP,
    "deep and open": '{"a": ' + "[" * DEEP,
    "a number of 5,000 digits": '{"a": ' + "9" * 5_000 + "}",
    "a number of 50,000 digits": "9" * 50_000,
    "a float beyond all": '{"a": 1e999, "b": -1e999999999}',
    "not a number": '{"a": NaN, "b": Infinity}',
    "NUL": '{"a\0": "\0", "b": "\\u0000"}',
    "unpaired surrogates": '{"\ud800": "\udfff", "b": "\\ud800"}',
    "the same key twice": '{"a": 1, "a": {"a": 2}}',
    "an empty key": '{"": {"": ""}}',
    "arguments as text within text": '"' + "\\" * 1001 + '"',
    "a line break within a string": '{"a": "\n"}',
    "nothing": "",
    "blanks": " \t\r\n" * 10_000,
}
OPEN = [
    "<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>", "<function=a>", "<function=",
    "<parameter=b>", "<parameter=", "</parameter>", "</function>", "<arg_key>a</arg_key>", "<arg_key>", "<arg_value>",
    "</arg_value>", "[TOOL_CALLS]", "a[ARGS]", "[CALL_ID]", BEGIN, SEPARATOR, END, "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>", "<|channel|>", "<|message|>", "<|start|>assistant", "to=functions.a", "<|end|>", "<|call|>",
    "<|python_tag|>", '{"name": "a", "arguments": {}}', '{"name": "a", "parameters": {', '{"name":', '{"arguments"',
    "{", "[", "[[", "}", ";", '"', "\\", "```python\n", "\n```", "````", "search[", "]", "finish[x]", "<search>",
    "</search>", "<code>", "</code>", "<answer>", "</answer>", " ", "\n", "a", "\0", "\ud800", "é",
    "<tool_call>{", '{"a":', "(", "1+", "\\boxed{", "\U0001f600", "\u0130",
]  # fmt: skip
LONG = [  # a beginning, and what follows it by the hundred thousand
    ("<function=", "a"), ("<function=a>", " "), ("<function=a>\n<parameter=", "b"), ("<function=a><parameter=b>", "\n"),
    ("<tool_call>", " "), ("<tool_call>", "a"), ("<tool_call>a<arg_key>", "a"),
    ("<tool_call>a<arg_key>a</arg_key>", " "),
    ("[TOOL_CALLS]", "a"), ("[TOOL_CALLS]", " "), ("[TOOL_CALLS]a[CALL_ID]", "a"), ("[TOOL_CALLS][", "{},"),
    ("[TOOL_CALLS]a[ARGS]{}", '{"'), ("<|message|>", "to=functions."), ("to=functions.", "a."), ("<|channel|>", " "),
    (BEGIN, "a"), (f"{BEGIN}function{SEPARATOR}", "a"), (f"{BEGIN}a{SEPARATOR}{{}}", "```"),
    ('{"name": "a", "parameters": {}}', " "), ('{"name": "a", "parameters": {}};', " "),
    ('{"name": "a", "parameters": {}}', " ;"), ('{"name": "', "a"), ("{", " "), ("[{", " "),
    ("```python\n", "```python "), ("search[", "[]"), ("<search>", "<search "), ("<code>", "<code "),
    ("<code>```python\n", "```\n"), ("[", '{"name": 1},'),
]  # fmt: skip


def read(name: str, text: str, tools: Any = None) -> ParsedAction:
    parsed = get_parser(name, tools).parse(text)
    assert isinstance(parsed.text, str) and isinstance(parsed.reasoning, str)
    for call in parsed.calls:
        if isinstance(call, ToolCall):
            assert isinstance(call.name, str) and isinstance(call.arguments, dict) and len(call.raw) <= len(text)
        else:
            assert isinstance(call, ParseFailure) and call.error and len(call.raw) <= len(text)
    count = len(parsed.calls)  # not in the assertion, which would show them all
    assert count <= MAX_CALLS + 1
    return parsed


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", sorted(PARSERS))
def test_hostile_arguments(name, value):
    whole = CALLS[name] % VALUES[value]
    texts = [whole, "\0\ud800" + whole + whole, f"<think>{whole}</think>{whole}", whole[:-1], whole[: len(whole) // 2]]
    for text in texts:
        read(name, text)
        strip_reasoning(text, get_parser(name))
        parse_recorded(text, ("python", "lookup"))


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_random_mixtures(name):
    seed = 16
    print("seed", seed)  # noqa: T201
    rng = random.Random(seed)
    pieces = [
        *OPEN,
        *(call % "{}" for call in CALLS.values()),
        *(VALUES[key] for key in ("NUL", "unpaired surrogates")),
    ]
    for _ in range(1000):
        text = "".join(rng.choices(pieces, k=rng.randrange(40)))
        read(name, text)
        strip_reasoning(text, get_parser(name))


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_what_is_not_closed_is_never_silent(name):
    """A call cut anywhere after its beginning is a failure, or still the same call; it is never another call."""
    text = CALLS[name] % ("one" if name in ONE_CALL or name in ("glm", "qwen_coder") else '{"a": "one"}')
    whole = read(name, text).calls
    for end in range(1, len(text)):
        if text[:end].endswith(
            "[ARGS]"
        ):  # how a tool without arguments may be called: the schema says if one is missing
            continue
        for call in read(name, text[:end]).calls:
            assert isinstance(call, ParseFailure) or (call.name, call.arguments) == (whole[0].name, whole[0].arguments)  # type: ignore[union-attr]


def seconds(function: Callable[[str], object], text: str) -> float:
    begun = time.process_time()
    function(text)
    return time.process_time() - begun


def check_time(function: Callable[[str], object], text: Callable[[int], str], what: object) -> None:
    """Check that four times the text takes about four times as long; quadratic time is 16 times, in each round."""
    if seconds(function, text(40_000)) < 0.016:
        return
    rounds = []
    while not rounds or (rounds[-1][1] > 9 * rounds[-1][0] and len(rounds) < 3):  # a core's speed may change within one
        rounds.append(tuple(min(seconds(function, text(size)) for _ in range(3)) for size in (10_000, 40_000)))
    assert rounds[-1][1] < 9 * rounds[-1][0], f"{what}: seconds for a text and for four times the text: {rounds}"


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_time_is_in_proportion_to_length(name):
    parser = get_parser(name)
    for piece in OPEN:
        check_time(parser.parse, lambda size, piece=piece: piece * (size // len(piece)), piece)  # type: ignore[misc]
    for start, piece in LONG:
        check_time(parser.parse, lambda size, a=start, b=piece: a + b * (size // len(b)), (start, piece))  # type: ignore[misc]
        both = start + piece * 20
        check_time(parser.parse, lambda size, b=both: b * (size // len(b)), both)  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_beginnings_before_endings_take_time_in_proportion_to_length(name):
    seed = 17
    print("seed", seed)  # noqa: T201
    rng, parser = random.Random(seed), get_parser(name)

    def reasoning(text: str) -> str:
        return strip_reasoning(text, parser)

    for _ in range(40):
        one, two, three = rng.choices(OPEN, k=3)
        for function in (parser.parse, reasoning):
            check_time(
                function,
                lambda size, a=one, b=two, c=three: (  # type: ignore[misc]
                    a * (size // 3 // len(a)) + b * (size // 3 // len(b)) + c * (size // 3 // len(c))
                ),
                (one, two, three),
            )


@pytest.mark.parametrize("name", ["glm", "qwen_coder"])
@pytest.mark.parametrize(
    "schema",
    [True, False, None, 5, "string", [], {"type": 5}, {"type": ["string", 5, None]}, {"type": "no such type"},
     {"enum": []}, {"anyOf": []}, {"anyOf": [5, None]}, {"$ref": "#"}, {"type": [], "nullable": True}],
)  # fmt: skip
def test_odd_schemas(name, schema):
    tool = {"function": {"name": "add", "parameters": {"properties": {"a": schema}}}}
    for value in ("1", "None", "", "[" * DEEP, "\0", "\ud800"):
        (call,) = read(name, CALLS[name] % value, [tool]).calls
        assert isinstance(call, ToolCall) and list(call.arguments) == ["a"]


@pytest.mark.parametrize("name", sorted(set(PARSERS) - ONE_CALL))
def test_calls_beyond_the_limit_are_one_failure(name):
    one = CALLS[name] % ("1" if name in ("glm", "qwen_coder") else "{}")
    *calls, last = read(name, one * 20_000).calls
    assert len(calls) == MAX_CALLS and all(isinstance(call, ToolCall) for call in calls)
    assert isinstance(last, ParseFailure) and "at most" in last.error
    array = {"json": "[%s]", "mistral": "[TOOL_CALLS][%s]"}.get(name)
    if array is not None:
        assert len(read(name, array % ", ".join([CALLS["json"] % "{}"] * 20_000)).calls) == MAX_CALLS + 1
