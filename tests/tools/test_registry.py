"""Schemas as servers and users write them, and arguments as policies write them.

Behaviours pinned here:
1. Any schema of JSON Schema will do, in the draft that it declares; one that is none is refused when tools are made.
2. Whatever a policy writes as arguments is a call or an error for the policy, never an exception.
3. Of a server's tools those that can be offered are; the log says which cannot.
"""

from __future__ import annotations

import logging
import pickle
from typing import Any

import numpy as np
import pytest

from agent_envs.errors import BackendReplyError, ConfigError
from agent_envs.messages import ToolCall
from agent_envs.parsers import PARSERS, get_parser
from agent_envs.policies.scripted import random_value
from agent_envs.tools import Tool, ToolRegistry, tool
from agent_envs.tools.listed import OfferedTool, checked_tools

DRAFT7 = "http://json-schema.org/draft-07/schema#"
TUPLE = {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False}
PLACE = {"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}}}
DEFS = {"count": {"type": ["integer", "null"]}, "place": PLACE, "s": {"type": "string"}}


def _schema(properties: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **keywords}


def _listed(schema: Any, name: Any = "f") -> dict[str, Any]:
    return {"name": name, "description": None, "inputSchema": schema}


def _said(name: str, arguments: dict[str, Any]) -> str:
    return repr(arguments)


def _registry(schema: Any) -> ToolRegistry:
    return ToolRegistry([OfferedTool(one, _said) for one in checked_tools([_listed(schema)], "x")])


@pytest.mark.parametrize(
    ("schema", "arguments", "said"),
    [
        (_schema({"q": {"type": ["string", "null"]}}), {"q": None}, "{'q': None}"),
        (_schema({"q": {"type": ["string", "null"]}}), {"q": 3}, "at ['q']: 3 is not of type 'string', 'null'"),
        (_schema({"v": True}), {"v": [{}]}, "{'v': [{}]}"),
        (_schema({"v": False}), {"v": 1}, "at ['v']: 1 should not be valid under"),
        (_schema({"v": {"type": "null"}}), {"v": None}, "{'v': None}"),
        (_schema({"v": {}}, required=None, additionalProperties=None), {"w": 1}, "{'w': 1}"),
        (_schema({"v": {"enum": [None, "a"], "default": None, "format": None}}), {"v": None}, "{'v': None}"),
        (None, {"v": 1}, "{'v': 1}"),
        ({}, {}, "{}"),
        ({"type": ["object", "null"]}, {"v": 1}, "{'v': 1}"),
        (_schema({"p": {"$ref": "#/$defs/place"}}, **{"$defs": DEFS}), {"p": {"n": 2.0}}, "{'p': {'n': 2}}"),
        (_schema({"p": {"$ref": "#/$defs/place"}}, **{"$defs": DEFS}), {"p": {"n": "a"}}, "at ['p']['n']: 'a' is not"),
        (_schema({"p": {"$ref": "#"}}), {"p": {"p": {}}}, "{'p': {'p': {}}}"),
        (_schema({"p": {"$ref": "#it"}}, **{"$defs": {"a": {"$anchor": "it", "type": "null"}}}), {"p": 1}, "not of"),
        (_schema({"p": {"$ref": "a:b#/$defs/s"}}, **{"$id": "a:b", "$defs": DEFS}), {"p": "a"}, "{'p': 'a'}"),
        (_schema({"box": TUPLE}, **{"$schema": DRAFT7}), {"box": [1.0, "a"]}, "{'box': [1, 'a']}"),
        (_schema({"box": TUPLE}, **{"$schema": DRAFT7}), {"box": [1, "a", 2]}, "Additional items are not allowed"),
        (_schema({"n": {"type": "number", "minimum": 0}}, **{"$schema": "http://x/unknown"}), {"n": 1.0}, "{'n': 1.0}"),
        (_schema({"n": {"type": "number", "multipleOf": 0.1}}), {"n": 10**400}, "nested too deeply or out of range"),
        (_schema({"n": {"type": "integer"}}), {"n": 3.0}, "{'n': 3}"),
        (_schema({"s": {"type": "string", "pattern": "("}}), {"s": "a"}, "{'s': 'a'}"),
    ],
)  # fmt: skip
def test_schemas_as_servers_write_them(schema: Any, arguments: dict[str, Any], said: str) -> None:
    registry = pickle.loads(pickle.dumps(_registry(schema)))
    (result,) = registry.run([ToolCall("f", arguments)])
    assert said in result.content and result.error is result.invalid is not said.startswith("{"), result.content


def test_readers_of_specs_see_objects_alone() -> None:
    """Chat templates, and those here that make calls of a schema: the random policy, trainers' methods."""
    schema = _schema(
        {"any": True, "none": False, "list": {"type": ["array", "null"], "items": True},
         "either": {"anyOf": [True, {"$ref": "#"}]}},
        required=["any", "list", "either"], additionalProperties=False, examples=[{"any": True}],
    )  # fmt: skip
    registry = _registry(schema)
    (spec,) = registry.specs
    properties = spec["function"]["parameters"]["properties"]
    assert properties["any"] == properties["list"]["items"] == properties["either"]["anyOf"][0] == {}
    assert properties["none"] == {"not": {}} and spec["function"]["parameters"]["additionalProperties"] is False
    assert spec["function"]["parameters"]["examples"] == [{"any": True}]
    assert random_value(spec["function"]["parameters"], np.random.default_rng(0))
    for parser in PARSERS:
        if parser not in ("react", "search_r1", "retool", "fenced_python"):
            assert get_parser(parser, [spec])
    spec["function"]["parameters"]["examples"][0]["any"] = 3
    assert registry.specs[0]["function"]["parameters"]["examples"] == [{"any": True}]


BROKEN = [
    (_schema({"s": {"$ref": "#/$defs/Missing"}}), "refer to nothing outside"),
    (_schema({"s": {"type": "array", "items": {"$ref": "#/definitions/Nope"}}}), "refer to nothing outside"),
    (_schema({"s": {"$dynamicRef": "#nope"}}), "refer to nothing outside"),
    (_schema({"s": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}}}), "refer to nothing"),
    (_schema({"s": {"$ref": "file:///etc/passwd"}}), "refer to nothing outside"),
    (_schema({"s": {"$ref": "http://127.0.0.1:9/schema"}}), "refer to nothing outside"),
    (_schema({}, **{"$ref": "#"}), "refer to nothing outside"),
    (_schema({"n": {"type": "number", "exclusiveMinimum": True}}), "not valid"),
    (_schema({"coin": {"type": "string"}, "required": ["coin"]}), "not valid"),
    (_schema({"s": {"type": "text"}}), "not valid"),
    (_schema({"s": {"type": [["string"]]}}), "not valid"),
    (_schema({"s": None}), "not valid"),
    (_schema({"s": 3}), "not valid"),
    (_schema([]), "not valid"),
    (_schema({}, required=[["a"]]), "not valid"),
    ({"type": "string"}, "must be an object's"),
]


@pytest.mark.parametrize(("schema", "said"), BROKEN)
def test_a_broken_schema_leaves_out_its_tool(schema: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        names = [
            one.name for one in checked_tools([_listed({}, "good"), _listed(schema, "bad"), _listed({}, "also")], "x")
        ]
    assert names == ["good", "also"] and "x: the tool 'bad' is left out: " in caplog.text and said in caplog.text
    with pytest.raises(BackendReplyError, match=said):
        checked_tools([_listed(schema)], "x")

    class Own(Tool):
        name, description, parameters = "own", "d", schema

        def call(self, **arguments: Any) -> str:
            return ""

    with pytest.raises(ConfigError, match=f"tool 'own': .*{said}"):
        ToolRegistry([Own()])


@pytest.mark.parametrize("entry", [None, "f", [], {}, _listed({}, None), _listed({}, "a b"), _listed([]), _listed("s")])
def test_what_is_no_tool_is_left_out(entry: Any) -> None:
    assert [one.name for one in checked_tools([entry, _listed({}, "good")], "x")] == ["good"]
    for tools in (None, {}, "f"):
        with pytest.raises(BackendReplyError, match="expected a list of tools"):
            checked_tools(tools, "x")


NAMES = ["self", "cls", "call", "arguments", "name", "entry", "function", "limit", "args", "kwargs", "timeout", "é", ""]


@pytest.mark.parametrize("blocking", [False, True])
def test_arguments_may_have_any_name(blocking: bool) -> None:
    registry = _registry({})
    if blocking:
        registry["f"].blocking = True
        registry = ToolRegistry([registry["f"]])
    for name in NAMES:
        assert registry.run([ToolCall("f", {name: 1})])[0].content == repr({name: 1})


def test_arguments_that_a_function_cannot_take_are_the_policys_error() -> None:
    class Open(Tool):
        name, description = "open", "d"
        parameters = _schema({"path": {"type": "string"}})

        def call(self, **arguments: Any) -> str:
            return repr(arguments)

    class Closed(Tool):
        name, description = "closed", "d"
        parameters = _schema({"path": {"type": "string"}})

        def call(self, *, path: str) -> str:
            return path

    @tool
    def own(self: int, cls: int = 0) -> str:
        """Add."""
        return str(self + cls)

    registry = ToolRegistry([Open(), Closed(), own])
    for name, arguments, said in (
        ("open", {"self": 1}, "multiple values for argument 'self'"),
        ("open", {"path": "a", "x": 1}, "{'path': 'a', 'x': 1}"),
        ("closed", {"path": "a", "x": 1}, "unexpected keyword argument 'x'"),
        ("closed", {}, "missing a required argument: 'path'"),
        ("closed", {"path": "a"}, "a"),
        ("own", {"self": 1, "cls": 2}, "3"),
    ):
        (result,) = registry.run([ToolCall(name, arguments)])
        assert said in result.content and result.error is result.invalid is (said[0] in "mu")
