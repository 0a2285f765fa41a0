"""Turns tools into Python methods, for trainers that read a tool's schema from its signature and docstring.

A tool's JSON schema becomes a keyword-only signature and a Google-style docstring. What type hints cannot express
(ranges, the properties of nested objects, ...) is added to the argument's description as JSON, so nothing is lost.
"""

from __future__ import annotations

import inspect
import json
import keyword
import typing
from collections.abc import Callable, Mapping
from typing import Any

from agent_envs.errors import ConfigError
from agent_envs.messages import ToolSpec

__all__ = ["CallableSpec", "tool_method", "type_hint"]

_PLAIN: dict[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "null": type(None), "array": list, "object": dict
}  # fmt: skip
_EXPRESSED = {"description", "title", "default", "additionalProperties"}  # keys that a type hint need not express


def type_hint(schema: Mapping[str, Any], name: str = "Arguments") -> Any:
    """Return the type hint of a JSON schema (draft 2020-12); ``Any`` if there is no narrower one.

    An object with properties becomes a ``TypedDict`` of that name.

    >>> type_hint({"type": "array", "items": {"type": "integer"}})
    list[int]
    >>> type_hint({"enum": ["a", "b"]})
    typing.Literal['a', 'b']
    >>> type_hint({"anyOf": [{"type": "string"}, {"type": "null"}]})
    str | None
    """
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is not None and all(isinstance(c, (str, int, float, bool, type(None))) for c in choices):
        return typing.Literal[tuple(choices)]
    parts = schema.get("anyOf") or schema.get("oneOf")
    kind = schema.get("type")
    if parts is None and isinstance(kind, list):
        parts = [{**schema, "type": one} for one in kind]
    if parts:
        hint = type_hint(parts[0], name)
        for part in parts[1:]:
            hint = hint | type_hint(part, name)
        return hint
    if kind == "array":
        firsts = schema.get("prefixItems", [])
        if len(firsts) > 1:
            return tuple[tuple(type_hint(first, name) for first in firsts)]  # type: ignore[misc]
        return list[type_hint(schema["items"], name)] if schema.get("items") else list  # type: ignore[misc]
    if kind == "object":
        required, properties = schema.get("required", ()), schema.get("properties")
        if properties:
            keys = {key: type_hint(inner, f"{name}_{key}") for key, inner in properties.items()}
            return typing.TypedDict(  # type: ignore[operator]
                name, {key: hint if key in required else typing.NotRequired[hint] for key, hint in keys.items()}
            )
        others = schema.get("additionalProperties")
        return dict[str, type_hint(others, name)] if isinstance(others, Mapping) and others else dict  # type: ignore[misc]
    return _PLAIN.get(str(kind), Any)


def tool_method(spec: ToolSpec, call: Callable[[Any, str, dict[str, Any]], str]) -> Callable[..., str]:
    """Return a method that calls a tool, with the tool's name and signature and a docstring for every argument.

    Arguments are passed on unchecked: the environment answers wrong ones, as for every policy.

    ``call`` takes the instance, the tool's name and the arguments, and returns the result.

    Raises:
        ConfigError: The tool has no name.
    """
    function = spec["function"]
    name, properties = function["name"], function["parameters"].get("properties", {})
    if not name:
        raise ConfigError(f"a tool needs a name, got {spec!r:.200}")

    def method(self: Any, /, **arguments: Any) -> str:
        return call(self, name, arguments)

    method.__name__ = name
    method.__qualname__ = name
    given = []
    if all(key.isidentifier() and not keyword.iskeyword(key) and key != "self" for key in properties):
        for key, schema in properties.items():
            required = key in function["parameters"].get("required", ())
            default, hint = inspect.Parameter.empty if required else schema.get("default"), type_hint(schema, key)
            given.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    else:  # Python allows no such parameter names, but a mapping of arguments may have them
        given.append(inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD, annotation=Any))
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    vars(method)["__signature__"] = inspect.Signature([own, *given], return_annotation=str)
    method.__annotations__ = {**{parameter.name: parameter.annotation for parameter in given}, "return": str}
    lines = [" ".join(str(function.get("description") or name).split())]
    if properties:
        lines += ["", "Args:"]
    for key, schema in properties.items():
        words = " ".join(str(schema.get("description") or key.replace("_", " ")).split())
        rest = {key: value for key, value in schema.items() if key != "description"}
        lines.append(f"    {key}: {words}{'' if _plain(schema) else f' JSON schema: {json.dumps(rest)}'}")
    method.__doc__ = "\n".join([*lines, "", "Returns:", "    The tool's result."])
    return method


def _plain(schema: Any) -> bool:
    """Whether a type hint expresses all of a schema: plain types, choices, and lists and mappings of these."""
    if not isinstance(schema, Mapping):
        return schema in (True, False)
    rest = {key: value for key, value in schema.items() if key not in _EXPRESSED}
    others = schema.get("additionalProperties", False)
    if "enum" in rest or "const" in rest:
        return set(rest) <= {"enum", "const", "type"}
    if "anyOf" in rest:
        return set(rest) == {"anyOf"} and all(map(_plain, rest["anyOf"]))
    if rest.get("type") == "array":
        return set(rest) <= {"type", "items"} and _plain(rest.get("items", True))
    if rest.get("type") == "object":
        return set(rest) == {"type"} and _plain(others)
    return not rest or (set(rest) == {"type"} and isinstance(rest["type"], str))


class CallableSpec(dict[str, Any]):
    """A tool's full specification that can also be called.

    Chat templates take tools as such dictionaries, or as functions whose schema they read from type hints. This is
    both: the template renders what it renders for every other actor, and the trainer can call it.

    >>> spec = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {}}}
    >>> add = CallableSpec(spec, lambda arguments: str(sum(arguments.values())))
    >>> add == spec, add.__name__, add(a=1, b=2)
    (True, 'add', '3')
    """

    def __init__(self, spec: ToolSpec, call: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(spec)
        self.__name__ = spec["function"]["name"]
        self._call = call

    def __call__(self, /, **arguments: Any) -> Any:
        return self._call(arguments)
